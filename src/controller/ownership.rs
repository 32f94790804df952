//! Whose claim, whose volume: decided by annotations and names alone.
//!
//! Owns the annotation keys by which claims and volumes name their provisioner, class and node.
//! Pure; the original's rules to the letter (reference 3.2, 3.3, 4.2).

use crate::kube::objects::{Claim, View as _, Volume};

/// Who should provision a claim.
const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The same under its older name, read only where the newer one is absent.
const BETA_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// The CSI driver that took over from an in-tree plugin.
const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// The class of a claim or volume under its older name; wins over the field.
const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// The node that the scheduler chose for a claim.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The same under its oldest name; read, never removed.
const ALPHA_SELECTED_NODE: &str = "volume.alpha.kubernetes.io/selected-node";
/// Who provisioned a volume.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// The names under which this process is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The CSI driver's name.
    pub driver: String,
    /// The in-tree plugin that the driver took over from, where it did.
    pub in_tree: Option<String>,
    /// The one node that this process provisions for, where others do for the others.
    pub node: Option<String>,
}

impl Identity {
    /// Whether `name` is one of ours.
    pub fn knows(&self, name: &str) -> bool {
        name == self.driver || self.in_tree.as_deref() == Some(name)
    }

    /// Whether the claim's annotations name us as its provisioner, and no other node than ours.
    pub fn owns_claim(&self, claim: &Claim) -> bool {
        self.is_for_driver(claim) && !self.is_elsewhere(claim)
    }

    /// Whether another node than ours was chosen for the claim: its own provisioner serves it.
    pub fn is_elsewhere(&self, claim: &Claim) -> bool {
        let Some(own) = &self.node else { return false };
        claim.annotation(SELECTED_NODE).is_some_and(|node| !node.is_empty() && node != own)
    }

    /// Whether nobody but us would provision for the claim: on a node only once it was chosen.
    pub fn is_provisioner_of(&self, claim: &Claim) -> bool {
        let decided =
            self.node.is_none() || claim.annotation(SELECTED_NODE) == self.node.as_deref();
        decided && self.owns_claim(claim)
    }

    /// Whether another driver's provisioner may serve the claim: it is named.
    pub fn is_for_another(&self, claim: &Claim) -> bool {
        provisioner(claim).is_some_and(|provisioner| !self.knows(provisioner))
    }

    /// Whether this process provisions for the node of this name.
    pub fn is_on(&self, node: &str) -> bool {
        self.node.as_deref() == Some(node)
    }

    /// Whether the claim's annotations name us as its provisioner, for whatever node.
    pub fn is_for_driver(&self, claim: &Claim) -> bool {
        let Some(provisioner) = provisioner(claim) else { return false };
        let for_driver =
            provisioner == self.driver || claim.annotation(MIGRATED_TO) == Some(&self.driver);
        for_driver && self.knows(provisioner)
    }

    /// Whether the volume is ours to look after: we made it, or it is our driver's and nobody's.
    pub fn owns_volume(&self, volume: &Volume) -> bool {
        let migrated = volume.annotation(MIGRATED_TO).is_some_and(|name| self.knows(name));
        match (volume.annotation(PROVISIONED_BY), &volume.spec.csi) {
            (Some(provisioner), _) => self.knows(provisioner) || migrated,
            (None, Some(csi)) => self.knows(&csi.driver),
            (None, None) => migrated,
        }
    }
}

/// Who should provision the claim, if anybody yet.
fn provisioner(claim: &Claim) -> Option<&str> {
    claim.annotation(STORAGE_PROVISIONER).or_else(|| claim.annotation(BETA_STORAGE_PROVISIONER))
}

/// The name of the claim's class; empty when it has none.
pub fn class_of_claim(claim: &Claim) -> &str {
    claim
        .annotation(BETA_STORAGE_CLASS)
        .or(claim.spec.storage_class_name.as_deref())
        .unwrap_or_default()
}

/// The name of the volume's class; empty when it has none.
pub fn class_of_volume(volume: &Volume) -> &str {
    volume.annotation(BETA_STORAGE_CLASS).unwrap_or(&volume.spec.storage_class_name)
}

/// The node that the scheduler chose for the claim.
pub fn selected_node(claim: &Claim) -> Option<&str> {
    claim.annotation(SELECTED_NODE).or_else(|| claim.annotation(ALPHA_SELECTED_NODE))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn identity() -> Identity {
        Identity {
            driver: "ebs.csi.aws.com".into(),
            in_tree: Some("kubernetes.io/aws-ebs".into()),
            node: None,
        }
    }

    fn claim(annotations: &serde_json::Value) -> Claim {
        serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
    }

    #[test]
    fn a_claim_is_ours_by_its_annotations() {
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
    fn on_a_node_the_claims_of_other_nodes_are_not_ours() {
        let on_node = Identity { node: Some("n1".into()), ..identity() };
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
    fn a_volume_is_ours_by_who_made_it_or_by_its_driver() {
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
    fn the_older_annotations_of_class_and_node_have_their_rank() {
        let mut both = claim(&json!({BETA_STORAGE_CLASS: "old", ALPHA_SELECTED_NODE: "n1"}));
        both.spec.storage_class_name = Some("new".into());
        assert_eq!((class_of_claim(&both), selected_node(&both)), ("old", Some("n1")));
        both.metadata.annotations = None;
        assert_eq!((class_of_claim(&both), selected_node(&both)), ("new", None));
        let newer = claim(&json!({SELECTED_NODE: "n2", ALPHA_SELECTED_NODE: "n1"}));
        assert_eq!(selected_node(&newer), Some("n2"));
    }
}
