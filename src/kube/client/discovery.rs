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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::kube::{
        objects::{Claim, VolumeAttributesClass},
        testing::{Answer, Server, client},
    };

    fn listing(kinds: &[&str]) -> Answer {
        let resources: Vec<_> =
            kinds.iter().map(|kind| json!({"name": "n", "kind": kind})).collect();
        Answer::json(200, &json!({"kind": "APIResourceList", "resources": resources}))
    }

    #[tokio::test]
    async fn a_kind_is_served_if_the_server_lists_it() {
        let there = listing(&["StorageClass", "VolumeAttributesClass"]);
        let absent = listing(&["StorageClass", "volumeattributesclass"]);
        for (answer, expected) in [
            (there, Some(true)),
            (absent, Some(false)),
            (listing(&[]), Some(false)),
            (Answer::json(200, &json!({})), Some(false)),
            (Answer::refusal(404, "NotFound", "the server could not find it"), Some(false)),
            (Answer::refusal(403, "Forbidden", "no"), None),
            (Answer::status(503), None),
            (Answer::json(200, &json!({"resources": 7})), None),
            (Answer::none(), None),
        ] {
            let server = Server::new(move |_, _| answer.clone());
            assert_eq!(client(&server).serves::<VolumeAttributesClass>().await.ok(), expected);
            assert_eq!(server.requests()[0].url, "/apis/storage.k8s.io/v1");
        }
        let server = Server::new(|_, _| listing(&["PersistentVolumeClaim"]));
        assert!(client(&server).serves::<Claim>().await.unwrap());
        assert_eq!(server.requests()[0].url, "/api/v1");
    }
}
