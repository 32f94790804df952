//! What claims name as the source of their volumes.
//!
//! Determines the [`NamedSource`] of a claim, as a pure function of the claim. It is lenient: it
//! accepts sources that the checks of provisioning would refuse, because holding a source too long
//! is better than losing it. A name that is too long for Kubernetes is ignored, so that users do
//! not control how much memory is used.

use std::fmt;

use super::grants::GrantTarget;
use crate::kube::objects::{Claim, MAX_NAME, ObjectReference, View};

/// The API group of snapshots.
pub const SNAPSHOT_GROUP: &str = "snapshot.storage.k8s.io";

/// The maximum length of a namespace's name, in bytes.
const MAX_NAMESPACE_LENGTH: usize = 63;

/// What kind of object a volume is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    /// A VolumeSnapshot that is restored.
    Snapshot,
    /// A PersistentVolumeClaim whose volume is cloned.
    Claim,
}

impl SourceKind {
    const ALL: [Self; 2] = [Self::Snapshot, Self::Claim];

    /// The finalizer that protects sources of the kind.
    pub const fn finalizer(self) -> &'static str {
        match self {
            Self::Snapshot => {
                "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"
            }
            Self::Claim => "provisioner.storage.kubernetes.io/cloning-protection",
        }
    }

    /// The kind of this name in Kubernetes, whatever its API group.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind's name in Kubernetes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Snapshot => "VolumeSnapshot",
            Self::Claim => "PersistentVolumeClaim",
        }
    }

    /// The API group; empty for the core group.
    const fn group(self) -> &'static str {
        match self {
            Self::Snapshot => SNAPSHOT_GROUP,
            Self::Claim => "",
        }
    }

    /// The API group and version, as objects name them.
    pub(super) const fn api_version(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot.storage.k8s.io/v1",
            Self::Claim => "v1",
        }
    }

    /// The kind of an object that a claim refers to. The API group of claims is ignored, as in
    /// external-provisioner.
    fn of(reference: &ObjectReference) -> Option<Self> {
        match (Self::of_name(&reference.kind)?, reference.api_group.as_deref()) {
            (Self::Claim, _) => Some(Self::Claim),
            (Self::Snapshot, None | Some(SNAPSHOT_GROUP)) => Some(Self::Snapshot),
            (Self::Snapshot, Some(_)) => None,
        }
    }

    /// Whether it is a claim. As in external-provisioner, who clones a claim holds it until bound, not only
    /// until there is a volume; the claim keeps the finalizer until it is deleted; and it is not cloned without.
    pub(super) const fn is_claim(self) -> bool {
        matches!(self, Self::Claim)
    }
}

/// A source by name, as in claims.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedSource {
    /// Snapshot or claim.
    pub kind: SourceKind,
    /// Its namespace: that of the claim that names it, or another.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl NamedSource {
    /// The source that `claim` names, if any.
    pub fn of(claim: &Claim) -> Option<Self> {
        let named = |reference: &Option<Box<ObjectReference>>| {
            let reference = reference.as_ref().filter(|reference| !reference.name.is_empty())?;
            let kind = SourceKind::of(reference)?;
            let elsewhere = reference.namespace.as_deref().filter(|space| !space.is_empty());
            let namespace = elsewhere.unwrap_or_else(|| claim.namespace());
            can_exist(namespace, &reference.name).then(|| Self {
                kind,
                namespace: namespace.to_owned(),
                name: reference.name.clone(),
            })
        };
        named(&claim.spec.data_source).or_else(|| named(&claim.spec.data_source_ref))
    }

    /// The object itself as a source of this kind.
    pub fn itself(kind: SourceKind, object: &impl View) -> Self {
        let (namespace, name) = (object.namespace().to_owned(), object.name().to_owned());
        Self { kind, namespace, name }
    }

    /// The source as grants name it.
    pub(super) fn target(&self) -> GrantTarget<'_> {
        let Self { kind, namespace, name } = self;
        GrantTarget { group: kind.group(), kind: kind.name(), namespace, name }
    }
}

/// Whether an object can have this name. Users can write longer names into a claim.
fn can_exist(namespace: &str, name: &str) -> bool {
    namespace.len() <= MAX_NAMESPACE_LENGTH && name.len() <= MAX_NAME
}

impl fmt::Display for NamedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn each_kind_is_found_by_its_name() {
        for kind in SourceKind::ALL {
            assert_eq!(SourceKind::of_name(kind.name()), Some(kind));
        }
        assert_eq!(SourceKind::of_name("Backup"), None);
    }

    #[test]
    fn each_finalizer_is_read_after_many_others() {
        for kind in SourceKind::ALL {
            let others = (0..1000).map(|number| format!("example.com/{number}"));
            let finalizers: Vec<String> = others.chain([kind.finalizer().to_owned()]).collect();
            let claim: Claim =
                serde_json::from_value(json!({"metadata": {"finalizers": finalizers}})).unwrap();
            assert!(claim.has_finalizer(kind.finalizer()), "add it to kube/objects/bounded.rs");
        }
    }

    fn named(spec: &Value) -> Option<String> {
        let claim = json!({"metadata": {"namespace": "ns", "name": "c"}, "spec": spec});
        let claim: Claim = serde_json::from_value(claim).unwrap();
        NamedSource::of(&claim).map(|source| source.to_string())
    }

    #[test]
    fn a_claim_names_snapshots_of_their_group_and_claims_of_any() {
        let snapshot =
            |group: Value| json!({"apiGroup": group, "kind": "VolumeSnapshot", "name": "s"});
        let claim =
            |group: Value| json!({"apiGroup": group, "kind": "PersistentVolumeClaim", "name": "o"});
        let table = [
            (snapshot(json!(SNAPSHOT_GROUP)), Some("VolumeSnapshot ns/s")),
            (snapshot(Value::Null), Some("VolumeSnapshot ns/s")),
            (snapshot(json!("example.com")), None),
            (claim(Value::Null), Some("PersistentVolumeClaim ns/o")),
            (claim(json!("example.com")), Some("PersistentVolumeClaim ns/o")),
            (json!({"kind": "PersistentVolumeClaim", "name": ""}), None),
            (json!({"apiGroup": "example.com", "kind": "Backup", "name": "b"}), None),
        ];
        for (reference, expected) in table {
            for field in ["dataSource", "dataSourceRef"] {
                assert_eq!(named(&json!({field: reference})).as_deref(), expected, "{reference}");
            }
        }
        assert_eq!(named(&json!({})), None);
    }

    /// A claim's user can write names of hundreds of kilobytes.
    #[test]
    fn a_name_that_is_too_long_for_kubernetes_names_nothing() {
        let reference = |namespace: usize, name: usize| {
            let (namespace, name) = ("n".repeat(namespace), "s".repeat(name));
            json!({"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": name, "namespace": namespace}})
        };
        for (namespace, name, expected) in [
            (63, 253, true),
            (0, 253, true),
            (63, 254, false),
            (64, 253, false),
            (0, 450_000, false),
        ] {
            let named = named(&reference(namespace, name));
            assert_eq!(named.is_some(), expected, "{namespace} {name}");
        }
    }

    #[test]
    fn a_reference_may_name_another_namespace_and_an_empty_one_is_none() {
        let reference = |space: &str| json!({"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "o", "namespace": space}});
        assert_eq!(named(&reference("other")).as_deref(), Some("PersistentVolumeClaim other/o"));
        assert_eq!(named(&reference("")).as_deref(), Some("PersistentVolumeClaim ns/o"));
    }
}
