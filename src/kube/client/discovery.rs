//! Asks the API server which kinds it serves, and under which names.
//!
//! Older releases and disabled APIs lack kinds. By default every authenticated user may ask.

use kube::{
    core::{GroupVersionKind, discovery::Scope},
    discovery::pinned_kind,
    error::DiscoveryError,
};

use super::Client;
use crate::kube::{
    error::ApiError,
    name::check_segment,
    objects::{View, kind::Kind},
    url::segment,
};

/// A kind that the server serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Its group, version and plural name.
    pub kind: Kind,
    /// Whether its objects live in a namespace.
    pub namespaced: bool,
}

impl Client {
    /// Whether the server serves the kind of the view `V` in the view's version.
    pub async fn serves<V: View>(&self) -> Result<bool, ApiError> {
        let served = self.find_kind(V::GROUP, V::VERSION, V::KIND).await?;
        Ok(served.is_some())
    }

    /// Looks up the kind `kind` in `version` of `group`; `None` if the server does not serve it. All
    /// three may be untrusted.
    pub async fn find_kind(
        &self,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Result<Option<Served>, ApiError> {
        check_segment("API group", group)?;
        check_segment("API version", version)?;
        // kube-rs writes both into the path as they are.
        let wanted = GroupVersionKind::gvk(&segment(group), &segment(version), kind);
        let (resource, capabilities) = match pinned_kind(&self.kube, &wanted).await {
            Ok(found) => found,
            Err(kube::Error::Discovery(DiscoveryError::MissingKind(_))) => return Ok(None),
            Err(error) => match ApiError::of_kube(error, &wanted.api_version()) {
                error if error.is_not_found() => return Ok(None),
                error => return Err(error),
            },
        };
        let (group, version) = (group.to_owned().into(), version.to_owned().into());
        Ok(Some(Served {
            kind: Kind { group, version, plural: resource.plural.into() },
            namespaced: capabilities.scope == Scope::Namespaced,
        }))
    }
}
