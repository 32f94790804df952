//! Decides whether a claim or a volume belongs to this provisioner, by annotations and names alone, with
//! exactly external-provisioner's rules. Pure functions.

use crate::{
    flags::VolumeNaming,
    kube::objects::{Claim, ClaimSpec, MIGRATED_TO, View, Volume},
};

/// On a claim: its provisioner.
const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The older name of [`STORAGE_PROVISIONER`], read only where the newer one is absent.
const BETA_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// The class of a claim or volume; takes precedence over the field.
const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// On a claim: the node that the scheduler selected.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The oldest name of [`SELECTED_NODE`]; it is read, but never removed.
const ALPHA_SELECTED_NODE: &str = "volume.alpha.kubernetes.io/selected-node";
/// On a volume: the provisioner that created it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// The names that identify this provisioner on claims and volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvisionerIdentity {
    /// The CSI driver's name.
    pub driver: String,
    /// The in-tree plugin that the driver replaces, if any.
    pub in_tree: Option<String>,
    /// With node deployment: the node that this process provisions for.
    pub node: Option<String>,
    /// How PersistentVolumes are named.
    pub naming: VolumeNaming,
}

impl ProvisionerIdentity {
    /// The provisioner of this driver, on any node, with default names of volumes.
    pub fn of_driver(driver: &str) -> Self {
        let naming = VolumeNaming::default();
        Self { driver: driver.to_owned(), in_tree: None, node: None, naming }
    }

    /// Whether `name` is the driver's or the in-tree plugin's.
    pub fn is_own_name(&self, name: &str) -> bool {
        name == self.driver || self.in_tree.as_deref() == Some(name)
    }

    /// Whether the claim's annotations name this provisioner, and no other node.
    pub fn owns_claim(&self, claim: &Claim) -> bool {
        self.is_for_driver(claim) && !self.is_elsewhere(claim)
    }

    /// Whether another node is selected for the claim, so that the provisioner there handles it.
    pub fn is_elsewhere(&self, claim: &Claim) -> bool {
        let Some(own) = &self.node else { return false };
        claim.annotation(SELECTED_NODE).is_some_and(|node| !node.is_empty() && node != own)
    }

    /// Whether only this process provisions for the claim. With node deployment that is so once its
    /// node is selected.
    pub fn is_provisioner_of(&self, claim: &Claim) -> bool {
        let decided =
            self.node.is_none() || claim.annotation(SELECTED_NODE) == self.node.as_deref();
        decided && self.owns_claim(claim)
    }

    /// Whether the claim's annotations name another driver's provisioner.
    pub fn is_for_another(&self, claim: &Claim) -> bool {
        provisioner(claim).is_some_and(|provisioner| !self.is_own_name(provisioner))
    }

    /// Whether this process provisions for this node.
    pub fn is_on(&self, node: &str) -> bool {
        self.node.as_deref() == Some(node)
    }

    /// Whether the claim's annotations name this provisioner, for any node.
    pub fn is_for_driver(&self, claim: &Claim) -> bool {
        let Some(provisioner) = provisioner(claim) else { return false };
        let for_driver =
            provisioner == self.driver || claim.annotation(MIGRATED_TO) == Some(&self.driver);
        for_driver && self.is_own_name(provisioner)
    }

    /// Whether the volume is managed by this provisioner: its annotations name this provisioner, or
    /// it is of this driver and its annotations name none.
    pub fn owns_volume(&self, volume: &Volume) -> bool {
        let migrated = volume.annotation(MIGRATED_TO).is_some_and(|name| self.is_own_name(name));
        match (volume.annotation(PROVISIONED_BY), &volume.spec.csi) {
            (Some(provisioner), _) => self.is_own_name(provisioner) || migrated,
            (None, Some(csi)) => self.is_own_name(&csi.driver),
            (None, None) => migrated,
        }
    }
}

/// The name of the claim's provisioner, if it has one yet.
pub fn provisioner(claim: &Claim) -> Option<&str> {
    claim.annotation(STORAGE_PROVISIONER).or_else(|| claim.annotation(BETA_STORAGE_PROVISIONER))
}

/// The CSI driver that the claim's annotations name, if they name one.
pub fn driver_of_claim(claim: &Claim) -> Option<&str> {
    claim.annotation(MIGRATED_TO).or_else(|| provisioner(claim))
}

/// The CSI driver of the volume, if it names one.
pub fn driver_of_volume(volume: &Volume) -> Option<&str> {
    volume.csi_driver().or_else(|| volume.annotation(PROVISIONED_BY))
}

/// The name of the claim's class; empty if it has none.
pub fn class_of_claim(claim: &Claim) -> &str {
    claim
        .annotation(BETA_STORAGE_CLASS)
        .or(claim.spec.storage_class_name.as_deref())
        .unwrap_or_default()
}

/// Whether the claim names a class, perhaps the empty one, in the annotation or the field.
pub fn names_class(claim: &impl View, spec: &ClaimSpec) -> bool {
    claim.annotation(BETA_STORAGE_CLASS).is_some() || spec.storage_class_name.is_some()
}

/// The name of the volume's class; empty if it has none.
pub fn class_of_volume(volume: &Volume) -> &str {
    volume.annotation(BETA_STORAGE_CLASS).unwrap_or(&volume.spec.storage_class_name)
}

/// The node that the scheduler selected for the claim.
pub fn selected_node(claim: &Claim) -> Option<&str> {
    claim.annotation(SELECTED_NODE).or_else(|| claim.annotation(ALPHA_SELECTED_NODE))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn identity() -> ProvisionerIdentity {
        ProvisionerIdentity {
            in_tree: Some("kubernetes.io/aws-ebs".into()),
            ..ProvisionerIdentity::of_driver("ebs.csi.aws.com")
        }
    }

    fn claim(annotations: &serde_json::Value) -> Claim {
        serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
    }

    #[test]
    fn annotations_decide_whether_a_claim_is_ours() {
        let new = STORAGE_PROVISIONER;
        let old = BETA_STORAGE_PROVISIONER;
        let cases = [
            (json!({new: "ebs.csi.aws.com"}), true, false),
            (json!({old: "ebs.csi.aws.com"}), true, false),
            (json!({new: "other", old: "ebs.csi.aws.com"}), false, true),
            (json!({old: "other"}), false, true),
            (json!({new: "", old: "ebs.csi.aws.com"}), false, true),
            (json!({new: "kubernetes.io/aws-ebs"}), false, false),
            (json!({new: "kubernetes.io/aws-ebs", MIGRATED_TO: "ebs.csi.aws.com"}), true, false),
            (json!({new: "other", MIGRATED_TO: "ebs.csi.aws.com"}), false, true),
            (json!({MIGRATED_TO: "ebs.csi.aws.com"}), false, false),
            (json!({}), false, false),
        ];
        for (annotations, ours, anothers) in cases {
            let claim = claim(&annotations);
            assert_eq!(identity().owns_claim(&claim), ours, "{annotations}");
            assert_eq!(identity().is_for_another(&claim), anothers, "{annotations}");
        }
    }

    #[test]
    fn with_node_deployment_claims_of_other_nodes_are_not_ours() {
        let on_node = ProvisionerIdentity { node: Some("n1".into()), ..identity() };
        for (node, here, elsewhere) in [
            (json!({}), true, false),
            (json!({SELECTED_NODE: ""}), true, false),
            (json!({SELECTED_NODE: "n1"}), true, false),
            (json!({SELECTED_NODE: "n2"}), false, true),
            (json!({ALPHA_SELECTED_NODE: "n2"}), true, false),
        ] {
            let mut annotations = node;
            annotations[STORAGE_PROVISIONER] = json!("ebs.csi.aws.com");
            let claim = claim(&annotations);
            assert_eq!(on_node.owns_claim(&claim), here, "{annotations}");
            assert_eq!(on_node.is_elsewhere(&claim), elsewhere, "{annotations}");
            let chosen = claim.annotation(SELECTED_NODE) == Some("n1");
            assert_eq!(on_node.is_provisioner_of(&claim), chosen, "{annotations}");
            assert!(identity().is_provisioner_of(&claim), "{annotations}");
            assert!(identity().owns_claim(&claim), "{annotations}");
        }
    }

    #[test]
    fn annotation_or_driver_decides_whether_a_volume_is_ours() {
        let cases = [
            (json!({"metadata": {"annotations": {PROVISIONED_BY: "ebs.csi.aws.com"}}}), true),
            (json!({"metadata": {"annotations": {PROVISIONED_BY: "kubernetes.io/aws-ebs"}}}), true),
            (
                json!({"metadata": {"annotations": {PROVISIONED_BY: "other"}}, "spec": {"csi": {"driver": "ebs.csi.aws.com"}}}),
                false,
            ),
            (
                json!({"metadata": {"annotations": {PROVISIONED_BY: "other", MIGRATED_TO: "ebs.csi.aws.com"}}}),
                true,
            ),
            (json!({"spec": {"csi": {"driver": "ebs.csi.aws.com"}}}), true),
            (json!({"spec": {"csi": {"driver": "other"}}}), false),
            (json!({"metadata": {"annotations": {MIGRATED_TO: "ebs.csi.aws.com"}}}), true),
            (json!({}), false),
        ];
        for (volume, ours) in cases {
            let read: Volume = serde_json::from_value(volume.clone()).unwrap();
            assert_eq!(identity().owns_volume(&read), ours, "{volume}");
        }
    }

    #[test]
    fn class_annotation_wins_over_the_field_and_newer_node_annotation_over_the_older() {
        let mut both = claim(&json!({BETA_STORAGE_CLASS: "old", ALPHA_SELECTED_NODE: "n1"}));
        both.spec.storage_class_name = Some("new".into());
        assert_eq!((class_of_claim(&both), selected_node(&both)), ("old", Some("n1")));
        both.metadata.annotations = std::collections::BTreeMap::default();
        assert_eq!((class_of_claim(&both), selected_node(&both)), ("new", None));
        let newer = claim(&json!({SELECTED_NODE: "n2", ALPHA_SELECTED_NODE: "n1"}));
        assert_eq!(selected_node(&newer), Some("n2"));
    }
}
