//! What makes a volume that the driver made unusable.
//!
//! Owns the checks of the driver's answer and their texts (reference 3.11). Pure. Leaves removing
//! such a volume to the controller, which knows whether that is safe.

use std::fmt;

use super::request::Prepared;
use crate::{
    controller::{
        model::unusable_volume::{Credentials, UnusableVolume},
        provisioner::Failure,
    },
    csi::proto::Volume,
    kube::quantity::Quantity,
    migration::Untranslatable,
};

/// What is wrong with a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Defect {
    /// It is smaller than the claim asks for.
    TooSmall {
        /// Its size in bytes.
        capacity: i64,
        /// The size asked for: in bytes, or as the claim says it where that does not fit.
        requested: String,
    },
    /// It should be made from a source, and the driver does not say that it is.
    SourceMissing,
    /// Its id, or what is to be kept of it beside that, is too large for a PersistentVolume.
    TooLarge {
        /// What is.
        what: &'static str,
        /// How large, in bytes.
        bytes: usize,
        /// The most that is taken, in bytes.
        most: usize,
    },
    /// The claim has lost the right to its source, which is in another namespace.
    Forfeited,
    /// Its class is an in-tree plugin's, and it can't be told as a volume of that plugin.
    Untranslatable(Untranslatable),
}

/// The longest id of a volume, in bytes: 32 times what the CSI specification allows.
pub(super) const MAX_ID: usize = 4 << 10;

/// The most that the context of a volume takes, in bytes: 64 times what the CSI specification allows. A
/// PersistentVolume of more than some megabyte is refused by the API server.
pub(super) const MAX_CONTEXT: usize = 256 << 10;

/// The most that the places take from which a volume can be reached, in bytes.
pub(super) const MAX_TOPOLOGY: usize = 256 << 10;

/// What a segment of a place takes in a PersistentVolume beside its key and its value.
const SEGMENT: usize = 64;

/// What is wrong with `volume`, which the driver made when it was asked for `prepared`.
pub(super) fn find(prepared: &Prepared, volume: &Volume) -> Option<Defect> {
    if prepared.is_forfeited {
        return Some(Defect::Forfeited);
    }
    if let Some(defect) = too_large(volume) {
        return Some(defect);
    }
    let capacity = volume.capacity_bytes;
    // Zero means that the driver does not know (CSI spec, CreateVolume).
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

/// What the volume's places take in a PersistentVolume.
fn topology(volume: &Volume) -> usize {
    let segments = volume.accessible_topology.iter().flat_map(|place| &place.segments);
    segments.map(|(key, value)| SEGMENT + key.len() + value.len()).sum()
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
    /// What must be known to remove the volume, made under this name and with these credentials.
    pub(super) fn leftover(
        &self,
        volume_name: &str,
        volume: &Volume,
        credentials: Credentials,
    ) -> UnusableVolume {
        UnusableVolume {
            handle: volume.volume_id.clone(),
            credentials,
            defect: Failure::new(self),
            orphaned: Failure::new(format!(
                "{self}. {} of volume {volume_name} failed, volume is orphaned",
                self.cleanup()
            )),
        }
    }

    /// The original's word for removing it, which begins small in one of the two texts.
    fn cleanup(&self) -> &'static str {
        match self {
            Self::TooSmall { .. }
            | Self::TooLarge { .. }
            | Self::Forfeited
            | Self::Untranslatable(_) => "Cleanup",
            Self::SourceMissing => "cleanup",
        }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall { capacity, requested } => {
                write!(
                    f,
                    "created volume capacity {capacity} less than requested capacity {requested}"
                )
            }
            Self::TooLarge { what, bytes, most } => write!(
                f,
                "the driver's {what} of {bytes} bytes is too large for a PersistentVolume: {most} are taken"
            ),
            Self::SourceMissing => f.write_str("volume content source missing"),
            Self::Forfeited => {
                f.write_str("the claim may no longer use its source, which is in another namespace")
            }
            Self::Untranslatable(why) => why.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        csi::proto::{Topology, VolumeContentSource},
        csi_provisioner::{
            request::draft,
            testing::{map, order, refusal, settings, source},
        },
    };

    fn prepared(spec: &serde_json::Value) -> Prepared {
        draft(&settings(&[]), &order(spec, &json!({})), None).map_err(refusal).unwrap()
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
            let told = found(&prepared, &volume(id, context)).unwrap();
            assert!(told.contains(expected), "{told}");
        }
        let place =
            |value: usize| Topology { segments: [("key".to_owned(), "x".repeat(value))].into() };
        let places = |count: usize, value: usize| Volume {
            accessible_topology: vec![place(value); count],
            ..volume(1, 0)
        };
        assert_eq!(found(&prepared, &places(512, 253)), None);
        // In a PersistentVolume an empty segment takes its place as well.
        for (count, value) in [(1024, 253), (4096, 0)] {
            let told = found(&prepared, &places(count, value)).unwrap();
            assert!(told.contains("accessible_topology of "), "{told}");
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
            // Larger than any volume can be said to be.
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

    /// Presence is all that is asked for, as in the original.
    #[test]
    fn a_volume_with_a_source_must_say_so() {
        let bare = Volume::default();
        let filled =
            Volume { content_source: Some(VolumeContentSource::default()), ..Volume::default() };
        let empty = prepared(&json!({}));
        let copied = Prepared { source: Some(source()), ..empty.clone() };
        assert_eq!(found(&copied, &bare).as_deref(), Some("volume content source missing"));
        assert_eq!(found(&copied, &filled), None);
        assert_eq!(found(&empty, &bare), None);
        assert_eq!(found(&empty, &filled), None);
        // Too small is said first.
        let small = Volume { capacity_bytes: 1, ..Volume::default() };
        assert!(found(&copied, &small).unwrap().starts_with("created volume capacity 1"));
    }

    #[test]
    fn a_leftover_is_told_in_the_originals_words() {
        let volume = Volume { volume_id: "h".into(), ..Volume::default() };
        let credentials = || Credentials::new(map(&[("key", "s3cr3t")]));
        let small = Defect::TooSmall { capacity: 1, requested: "2".into() };
        for (defect, told, orphaned) in [
            (small, "created volume capacity 1 less than requested capacity 2", "Cleanup"),
            (Defect::SourceMissing, "volume content source missing", "cleanup"),
        ] {
            let leftover = defect.leftover("pvc-u", &volume, credentials());
            assert_eq!((&*leftover.handle, &leftover.credentials), ("h", &credentials()));
            assert_eq!(leftover.defect.to_string(), told);
            assert_eq!(
                leftover.orphaned.to_string(),
                format!("{told}. {orphaned} of volume pvc-u failed, volume is orphaned")
            );
        }
    }
}
