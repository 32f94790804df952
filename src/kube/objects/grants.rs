//! The Gateway API's ReferenceGrant, which allows references from other namespaces.

use serde::Deserialize;

use super::{Metadata, View};

view! {
    /// A ReferenceGrant: allows references to objects in its namespace.
    ReferenceGrant: Namespaced "gateway.networking.k8s.io" "v1beta1" "ReferenceGrant" "referencegrants" {
        /// The allowed references.
        spec: ReferenceGrantSpec,
    }
}

/// The allowed references: from every object that `from` names to every object that `to` names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ReferenceGrantSpec {
    /// The referrers.
    pub from: Vec<ReferenceGrantFrom>,
    /// The referents, in the grant's own namespace.
    pub to: Vec<ReferenceGrantTo>,
}

/// Objects of one kind in one namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ReferenceGrantFrom {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Their namespace.
    pub namespace: String,
}

/// Objects of one kind, or one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ReferenceGrantTo {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// The name of the one object; absent or empty for all objects of the kind.
    pub name: Option<String>,
}
