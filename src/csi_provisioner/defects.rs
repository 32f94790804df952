//! Defects that make a created volume unusable.
//!
//! Checks the driver's response; error texts included. Pure. Deleting such a volume belongs to the
//! controller, which knows whether that is safe.

use csi_translation::Untranslatable;
use go_fmt::quantity::Quantity;

use super::request::Prepared;
use crate::{
    controller::{
        model::unusable_volume::{Credentials, UnusableVolume},
        provisioner::{Failure, VolumeHandle},
    },
    csi::proto::Volume,
};

/// What makes a volume unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// It is smaller than the claim requests.
    #[error("created volume capacity {capacity} less than requested capacity {requested}")]
    TooSmall {
        /// Its size in bytes.
        capacity: i64,
        /// The requested size: in bytes, or as the claim writes it if that overflows.
        requested: String,
    },
    /// The request has a source, and the response has none.
    #[error("volume content source missing")]
    SourceMissing,
    /// Its id, context or topology is too large for a PersistentVolume.
    #[error(
        "the driver's {what} of {bytes} bytes is too large for a PersistentVolume: {most} are taken"
    )]
    TooLarge {
        /// Which of them.
        what: &'static str,
        /// Its size, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        most: usize,
    },
    /// The claim has lost access to its source in another namespace.
    #[error("the claim may no longer use its source, which is in another namespace")]
    AccessRevoked,
    /// Its class is an in-tree plugin's, and the volume can't be translated.
    #[error(transparent)]
    Untranslatable(Untranslatable),
}

/// The longest id of a volume, in bytes: 32 times what the CSI specification allows.
pub(super) const MAX_ID: usize = 4 << 10;

/// The size limit of a volume context, in bytes: 64 times what the CSI specification allows. The
/// API server refuses a PersistentVolume of more than about 1.5 megabytes.
pub(super) const MAX_CONTEXT: usize = 256 << 10;

/// The size limit of a volume's accessible topology, in bytes, which the CSI specification does not limit: room for
/// 5,000 hosts by their names.
pub(super) const MAX_TOPOLOGY: usize = 1 << 20;

/// The size of a topology segment in a PersistentVolume in addition to key and value.
const SEGMENT: usize = 64;

/// Finds what makes `volume` unusable, which the driver created for `prepared`.
pub(super) fn find(prepared: &Prepared, volume: &Volume) -> Option<Defect> {
    if prepared.access_revoked {
        return Some(Defect::AccessRevoked);
    }
    if let Some(defect) = too_large(volume) {
        return Some(defect);
    }
    let capacity = volume.capacity_bytes;
    // Zero means unknown (CSI spec, CreateVolume).
    if capacity != 0 && Quantity::from_bytes(capacity) < prepared.size {
        let requested = match prepared.size.checked_value() {
            Some(bytes) => bytes.to_string(),
            None => prepared.size.to_string(),
        };
        return Some(Defect::TooSmall { capacity, requested });
    }
    let lacks_source = prepared.source.is_some() && volume.content_source.is_none();
    lacks_source.then_some(Defect::SourceMissing)
}

/// The size of the volume's topology in a PersistentVolume.
fn topology(volume: &Volume) -> usize {
    let size = |(key, value): (&String, &String)| SEGMENT + key.len() + value.len();
    let places = volume.accessible_topology.iter();
    // A place without segments is one as well.
    places.map(|place| place.segments.iter().map(size).sum::<usize>().max(SEGMENT)).sum()
}

fn too_large(volume: &Volume) -> Option<Defect> {
    let context = volume.volume_context.iter().map(|(key, value)| key.len() + value.len()).sum();
    let sizes = [
        ("volume_id", volume.volume_id.len(), MAX_ID),
        ("volume_context", context, MAX_CONTEXT),
        ("accessible_topology", topology(volume), MAX_TOPOLOGY),
    ];
    let defect = |(what, bytes, most)| Defect::TooLarge { what, bytes, most };
    sizes.into_iter().find(|(_, bytes, most)| bytes > most).map(defect)
}

// === impl Defect ===

impl Defect {
    /// What is needed to delete the volume, created under this name and with these credentials.
    pub(super) fn unusable_volume(
        &self,
        volume_name: &str,
        handle: VolumeHandle,
        credentials: Credentials,
    ) -> UnusableVolume {
        UnusableVolume {
            handle,
            credentials,
            defect: Failure::new(self),
            orphaned: Failure::new(format!(
                "{self}. {} of volume {volume_name} failed, volume is orphaned",
                self.cleanup()
            )),
        }
    }

    /// external-provisioner's word for the deletion; it is lower case in one of the two texts.
    fn cleanup(&self) -> &'static str {
        if *self == Self::SourceMissing { "cleanup" } else { "Cleanup" }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        csi::proto::Topology,
        csi_provisioner::{
            request::draft,
            testing::{refusal, request, settings},
        },
    };

    fn prepared(spec: &serde_json::Value) -> Prepared {
        draft(&settings(&[]), &request(spec, &json!({})), None).map_err(refusal).unwrap()
    }

    fn found(prepared: &Prepared, volume: &Volume) -> Option<String> {
        find(prepared, volume).map(|defect| defect.to_string())
    }

    #[test]
    fn what_a_driver_says_of_a_volume_is_bounded() {
        let prepared = prepared(&json!({}));
        let volume = |id: usize, context: usize| Volume {
            volume_id: "x".repeat(id),
            volume_context: [("key".to_owned(), "x".repeat(context))].into(),
            ..Volume::default()
        };
        assert_eq!(found(&prepared, &volume(4096, (256 << 10) - 3)), None);
        for (id, context, expected) in
            [(4097, 0, "volume_id of 4097"), (1, 1 << 20, "volume_context of 1048579")]
        {
            let text = found(&prepared, &volume(id, context)).unwrap();
            assert!(text.contains(expected), "{text}");
        }
        let place =
            |value: usize| Topology { segments: [("key".to_owned(), "x".repeat(value))].into() };
        let places = |count: usize, value: usize| Volume {
            accessible_topology: vec![place(value); count],
            ..volume(1, 0)
        };
        assert_eq!(found(&prepared, &places(5000, 136)), None);
        // In a PersistentVolume an empty segment takes space as well.
        for (count, value) in [(4096, 253), (20_000, 0)] {
            let text = found(&prepared, &places(count, value)).unwrap();
            assert!(text.contains("accessible_topology of "), "{text}");
        }
    }

    #[test]
    fn a_volume_must_be_as_large_as_the_claim_asks() {
        const GI: i64 = 1 << 30;
        let small = |capacity: i64, requested: &str| {
            Some(format!(
                "created volume capacity {capacity} less than requested capacity {requested}"
            ))
        };
        for (requested, capacity, expected) in [
            ("1Gi", 0, None),
            ("1Gi", GI, None),
            ("1Gi", GI + 1, None),
            ("1Gi", i64::MAX, None),
            ("1Gi", GI - 1, small(GI - 1, "1073741824")),
            ("1Gi", 1, small(1, "1073741824")),
            ("1Gi", -5, small(-5, "1073741824")),
            ("1Gi", i64::MIN, small(i64::MIN, "1073741824")),
            ("0", -1, small(-1, "0")),
            ("0", 1, None),
            ("100m", 1, None),
            ("1500m", 1, small(1, "2")),
            ("1500m", 2, None),
            ("16Ei", i64::MAX, None),
            ("16Ei", i64::MAX - 1, small(i64::MAX - 1, "9223372036854775807")),
            // Larger than any representable size.
            ("20E", GI, small(GI, "20E")),
            ("20E", i64::MAX, small(i64::MAX, "20E")),
            ("9300P", i64::MAX, small(i64::MAX, "9300P")),
            ("10e18", 1, small(1, "10e18")),
            ("20E", 0, None),
        ] {
            let volume = Volume { capacity_bytes: capacity, ..Volume::default() };
            let spec = json!({"resources": {"requests": {"storage": requested}}});
            assert_eq!(found(&prepared(&spec), &volume), expected, "{requested} {capacity}");
        }
    }
}
