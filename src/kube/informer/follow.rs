//! A watch on one object of any kind, by its name.
//!
//! It needs the right to watch and no other, requests nothing but the object's metadata, and ends if
//! it is silent for too long. The caller decides what follows its end, or a refusal.

use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::timeout;

use crate::kube::{
    client::{
        Client,
        name::Name,
        watch::{ObjectWatch, WatchEvent},
    },
    error::ApiError,
    objects::{AnyObject, kind::Kind},
};

/// The server ends a watch after this time, in seconds; load balancers allow it.
const WATCH_SECONDS: u32 = 240;

/// A watch that is silent for longer is dead.
const MAX_SILENCE: Duration = Duration::from_secs(250);

impl Client {
    /// Watches the object until the watch ends. Calls `report` with its `resourceVersion`: at once if the
    /// object exists, then after each change; with none when it is deleted.
    pub async fn follow(
        &self,
        kind: &Kind,
        name: Name<'_>,
        mut report: impl FnMut(Option<String>) + Send,
    ) -> Result<(), ApiError> {
        let watch = ObjectWatch { version: "", seconds: WATCH_SECONDS, only_metadata: true };
        let mut events = self.watch_object::<AnyObject>(kind, name, watch).await?;
        while let Ok(Some(event)) = timeout(MAX_SILENCE, events.next()).await {
            match event? {
                WatchEvent::Applied(object) => {
                    report(object.metadata.resource_version.map(Into::into));
                }
                WatchEvent::Deleted(_) => report(None),
                WatchEvent::Bookmark(_) => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube::{
        client::MAX_ANSWER,
        objects::Secret,
        testing::{Answer, End, Server, client},
    };

    /// Follows a secret; returns the versions that were reported, and how it ended.
    async fn followed(watch: Answer) -> (Server, Vec<Option<String>>, Result<(), ApiError>) {
        let server = Server::new(move |_, _| watch.clone());
        let mut reported = Vec::new();
        let kind = Kind::of::<Secret>();
        let name = Name::namespaced("a b", "s").unwrap();
        let ended = client(&server).follow(&kind, name, |version| reported.push(version)).await;
        (server, reported, ended)
    }

    #[tokio::test(start_paused = true)]
    async fn the_versions_of_the_object_are_reported_until_the_watch_ends() {
        let secret = |version: &str| json!({"metadata": {"name": "s", "resourceVersion": version}});
        let watch = Answer::watch()
            .event(1, "ADDED", &secret("7"))
            .event(200, "MODIFIED", &secret("8"))
            .event(200, "DELETED", &secret("9"));
        let (server, reported, ended) = followed(watch.clone().end(End::Closed)).await;
        assert_eq!(reported, [Some("7".to_owned()), Some("8".to_owned()), None]);
        assert!(ended.is_ok());
        let request = &server.requests()[0];
        assert!(request.url.starts_with("/api/v1/namespaces/a%20b/secrets?"), "{}", request.url);
        assert!(request.url.contains("fieldSelector=metadata.name%3Ds"), "{}", request.url);
        assert!(request.header("accept").contains("as=PartialObjectMetadata"));
        let (_, reported, ended) = followed(watch).await;
        assert!(reported.len() == 3 && ended.is_ok(), "a silent watch is dead");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_ends_it() {
        let refused = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "old"});
        for watch in
            [Answer::refusal(410, "Expired", "old"), Answer::watch().event(0, "ERROR", &refused)]
        {
            assert_eq!(followed(watch).await.2.unwrap_err().code(), Some(410));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_is_longer_than_any_answer_ends_it() {
        let (_, _, ended) = followed(Answer::watch().chunk(0, vec![b'x'; MAX_ANSWER + 1])).await;
        assert!(ended.unwrap_err().to_string().ends_with("larger than 32 MiB"));
    }
}
