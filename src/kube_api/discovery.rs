//! What the API server serves.
//!
//! Owns the question whether a kind is there at all, which older releases and switched-off APIs
//! answer with no. Needs no right but that of every authenticated user. Leaves what follows from
//! the answer to the callers.

use serde::Deserialize;

use super::{client::Client, error::ApiError, views::View};

/// The kinds of one version of a group.
#[derive(Deserialize)]
struct Served {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    kind: String,
}

impl Client {
    /// Whether the server serves the kind that the view `V` reads, in that version.
    pub async fn serves<V: View>(&self) -> Result<bool, ApiError> {
        let path = match &*V::group(&()) {
            "" => format!("/api/{}", V::version(&())),
            group => format!("/apis/{group}/{}", V::version(&())),
        };
        match self.read::<Served>(&path).await {
            Err(error) if error.is_not_found() => Ok(false),
            served => {
                let kind = V::kind(&());
                served.map(|served| served.resources.iter().any(|resource| resource.kind == *kind))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::kube_api::{
        testing::{Answer, Server, client},
        views::{Claim, VolumeAttributesClass},
    };

    fn listing(kinds: &[&str]) -> Answer {
        let resources: Vec<_> =
            kinds.iter().map(|kind| json!({"name": "n", "kind": kind})).collect();
        Answer::json(200, &json!({"kind": "APIResourceList", "resources": resources}))
    }

    #[tokio::test]
    async fn a_kind_is_served_where_the_server_lists_it() {
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
            assert_eq!(server.seen()[0].url, "/apis/storage.k8s.io/v1");
        }
        let server = Server::new(|_, _| listing(&["PersistentVolumeClaim"]));
        assert!(client(&server).serves::<Claim>().await.unwrap());
        assert_eq!(server.seen()[0].url, "/api/v1");
    }
}
