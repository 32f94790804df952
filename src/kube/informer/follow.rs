//! One object by name, of whatever kind: its version, now and with each change.
//!
//! Owns a watch on a single name. Promises that it needs the right to watch and no other, that
//! nothing of the object is asked for but its metadata, and that a watch which is dead ends. Leaves
//! what to do when it ends, or may not be begun, to the caller.

use std::time::Duration;

use futures::TryStreamExt as _;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, WatchEvent, WatchParams},
};
use tokio::time::timeout;

use crate::kube::{
    client::{Client, name::Name},
    connection::url::segment,
    error::{ApiError, Refusal},
    objects::kind::Kind,
};

/// The server ends a watch after this time, in seconds; load balancers put up with it.
const WATCH_SECONDS: u32 = 240;

/// One that has been silent for longer is dead.
const DEAD: Duration = Duration::from_secs(250);

impl Client {
    /// Watches the object until the watch ends. `tell` is given its `resourceVersion`: at once where
    /// there is such an object, then with each change; none when it is deleted.
    pub async fn follow(
        &self,
        kind: &Kind,
        name: Name<'_>,
        mut tell: impl FnMut(Option<String>) + Send,
    ) -> Result<(), ApiError> {
        let api = self.api_of(kind, name.namespace());
        let only = WatchParams::default()
            .fields(&format!("metadata.name={}", name.name()))
            .timeout(WATCH_SECONDS)
            .disable_bookmarks();
        // Without a version to begin at, the watch shows what is there first.
        let events = api.watch_metadata(&only, "").await.map_err(failed)?;
        tokio::pin!(events);
        while let Ok(event) = timeout(DEAD, events.try_next()).await {
            match event.map_err(failed)? {
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    tell(object.metadata.resource_version);
                }
                Some(WatchEvent::Deleted(_)) => tell(None),
                Some(WatchEvent::Bookmark(_)) => {}
                Some(WatchEvent::Error(status)) => return Err(failed(kube::Error::Api(status))),
                None => break,
            }
        }
        Ok(())
    }

    fn api_of(&self, kind: &Kind, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = (kind.group.to_string(), kind.version.to_string());
        let api_version =
            if group.is_empty() { version.clone() } else { format!("{group}/{version}") };
        // kube makes URLs of the plural.
        let (plural, singular) = (kind.plural.to_string(), String::new());
        let resource = ApiResource { group, version, api_version, kind: singular, plural };
        match namespace {
            // kube takes it for a part of the path as it is.
            Some(namespace) => Api::namespaced_with(self.kube(), &segment(namespace), &resource),
            None => Api::all_with(self.kube(), &resource),
        }
    }
}

fn failed(error: kube::Error) -> ApiError {
    match error {
        kube::Error::Api(status) => ApiError::Refused(Box::new(Refusal {
            code: status.code,
            reason: status.reason.clone(),
            message: status.message.clone(),
        })),
        error => ApiError::NoAnswer(error.into()),
    }
}
