//! Compares the driver's volumes with the PersistentVolumes.

use std::{collections::BTreeSet, fmt, io};

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, api::ListParams};

use crate::cluster::Cluster;

/// Why nobody knows what is left.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// The API server does not say.
    #[error("can't list the PersistentVolumes: {0}")]
    Api(#[from] kube::Error),
    /// The disk does not say.
    #[error("can't read the driver's volumes: {0}")]
    Disk(#[from] io::Error),
}

/// The volumes at the end of a scenario, by their handles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Balance {
    /// How many there should be.
    pub expected: usize,
    /// The driver's own list.
    pub at_driver: BTreeSet<String>,
    /// Those that PersistentVolumes name.
    pub in_cluster: BTreeSet<String>,
}

impl Balance {
    /// Reads the driver's list and the PersistentVolumes.
    ///
    /// # Errors
    /// Which of them can't be read.
    pub async fn read(cluster: &Cluster, expected: usize) -> Result<Self, LookError> {
        let volumes = Api::<PersistentVolume>::all(cluster.client().clone());
        let volumes = volumes.list(&ListParams::default()).await?;
        let handle = |volume: PersistentVolume| Some(volume.spec?.csi?.volume_handle);
        Ok(Self {
            expected,
            at_driver: cluster.volumes_at_driver()?.into_iter().collect(),
            in_cluster: volumes.into_iter().filter_map(handle).collect(),
        })
    }

    /// Whether each volume has its PersistentVolume, and each PersistentVolume its volume.
    pub fn is_even(&self) -> bool {
        self.at_driver == self.in_cluster && self.at_driver.len() == self.expected
    }
}

/// The closing sentence.
impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { expected, at_driver, in_cluster } = self;
        let (there, known) = (at_driver.len(), in_cluster.len());
        if self.is_even() {
            return write!(
                f,
                "Nothing is lost: volumes at the driver: {there}, PersistentVolumes for them: {known}."
            );
        }
        let names = |set: BTreeSet<&String>| match set.len() {
            0 => "none".to_owned(),
            _ => set.into_iter().map(String::as_str).collect::<Vec<_>>().join(" "),
        };
        write!(
            f,
            "Something is lost: volumes at the driver: {there} ({expected} expected), without a \
             PersistentVolume: {}, PersistentVolumes without a volume: {}.",
            names(at_driver.difference(in_cluster).collect()),
            names(in_cluster.difference(at_driver).collect()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_if_both_sides_have_the_same_volumes() {
        for (expected, at_driver, in_cluster, even, text) in [
            (
                1,
                &["v"][..],
                &["v"][..],
                true,
                "volumes at the driver: 1, PersistentVolumes for them: 1.",
            ),
            (0, &[], &[], true, "volumes at the driver: 0, PersistentVolumes for them: 0."),
            (1, &["v", "w"], &["v"], false, "without a PersistentVolume: w, "),
            (1, &["v"], &["x"], false, "PersistentVolumes without a volume: x."),
            (0, &["v"], &["v"], false, "volumes at the driver: 1 (0 expected), "),
        ] {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let (at_driver, in_cluster) = (owned(at_driver), owned(in_cluster));
            let balance = Balance { expected, at_driver, in_cluster };
            assert_eq!(balance.is_even(), even, "{balance}");
            assert!(balance.to_string().contains(text), "{balance}");
        }
    }
}
