//! Grants of the Gateway API, by which a namespace lets others refer to its objects.

use serde::Deserialize;

use super::{Cow, NamespaceResourceScope, ObjectMeta, Resource, View, slim_metadata};

view! {
    /// A ReferenceGrant: what its namespace lets others refer to.
    ReferenceGrant: Namespaced "gateway.networking.k8s.io" "v1beta1" "ReferenceGrant" "referencegrants" {
        /// Who may refer to what.
        spec: ReferenceGrantSpec,
    }
}

/// Who may refer to what: everybody of `from` to everything of `to`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ReferenceGrantSpec {
    /// Who.
    pub from: Vec<ReferenceGrantFrom>,
    /// To what, in the grant's own namespace.
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
    /// The one object; all of the kind where there is none or an empty one.
    pub name: Option<String>,
}
