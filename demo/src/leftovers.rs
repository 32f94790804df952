//! What is left at the end, and the closing sentence.

use std::{fmt, io};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;

use crate::cluster::Cluster;

/// Why nobody knows what is left.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// The API server does not say.
    #[error("can't list what is left: {0}")]
    Api(#[from] kube::Error),
    /// The disk does not say.
    #[error("can't read what is left of the driver's volumes: {0}")]
    Disk(#[from] io::Error),
}

/// All there is of claims and volumes, each by its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Claims.
    pub claims: Vec<String>,
    /// PersistentVolumes.
    pub volumes: Vec<String>,
    /// What lies in the driver's directory, be it a volume or not.
    pub files: Vec<String>,
    /// The driver's own list of its volumes.
    pub at_driver: Vec<String>,
}

impl Leftovers {
    /// Looks everywhere.
    ///
    /// # Errors
    /// Where one can't be looked at.
    pub async fn look(cluster: &Cluster) -> Result<Self, LookError> {
        let client = cluster.client();
        Ok(Self {
            claims: names::<PersistentVolumeClaim>(client).await?,
            volumes: names::<PersistentVolume>(client).await?,
            files: cluster.files()?,
            at_driver: cluster.volumes_at_driver()?,
        })
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

async fn names<K>(client: &Client) -> kube::Result<Vec<String>>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let all = Api::<K>::all(client.clone()).list(&ListParams::default()).await?;
    Ok(all.iter().map(ResourceExt::name_any).collect())
}

/// The closing sentence.
impl fmt::Display for Leftovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str(
                "Everything is gone: no claim, no PersistentVolume, no directory, \
                 and the driver's list is empty.",
            );
        }
        let kinds = [
            ("claim", &self.claims),
            ("PersistentVolume", &self.volumes),
            ("in the driver's directory", &self.files),
            ("in the driver's list", &self.at_driver),
        ];
        let left = kinds.into_iter().filter(|(_, names)| !names.is_empty());
        let left: Vec<_> =
            left.map(|(kind, names)| format!("{kind}: {}", names.join(" "))).collect();
        write!(f, "Not everything is gone. What is left: {}.", left.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_sentence_names_all_that_is_left() {
        assert!(Leftovers::default().to_string().starts_with("Everything is gone"));
        let one = || vec!["x".to_owned()];
        let none = Leftovers::default;
        for (left, expected) in [
            (Leftovers { claims: one(), ..none() }, "claim: x."),
            (Leftovers { volumes: one(), ..none() }, "PersistentVolume: x."),
            (Leftovers { files: one(), ..none() }, "in the driver's directory: x."),
            (Leftovers { at_driver: one(), ..none() }, "in the driver's list: x."),
            (
                Leftovers { claims: one(), at_driver: one(), ..none() },
                "claim: x; in the driver's list: x.",
            ),
        ] {
            assert!(!left.is_empty());
            assert_eq!(
                left.to_string(),
                format!("Not everything is gone. What is left: {expected}")
            );
        }
    }
}
