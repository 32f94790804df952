//! A watch on one object of any kind, by its name.
//!
//! It needs the right to watch and no other, requests nothing but the object's metadata, and ends if
//! it is silent for too long. The caller decides what follows its end, or a refusal.

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
        let api = self.api_of(kind, name.namespace());
        let only = WatchParams::default()
            .fields(&format!("metadata.name={}", name.name()))
            .timeout(WATCH_SECONDS)
            .disable_bookmarks();
        // A watch without a version begins with the object as it is.
        let events = api.watch_metadata(&only, "").await.map_err(failed)?;
        tokio::pin!(events);
        while let Ok(event) = timeout(MAX_SILENCE, events.try_next()).await {
            match event.map_err(failed)? {
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    report(object.metadata.resource_version);
                }
                Some(WatchEvent::Deleted(_)) => report(None),
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
        // kube builds URLs from the plural alone.
        let (plural, singular) = (kind.plural.to_string(), String::new());
        let resource = ApiResource { group, version, api_version, kind: singular, plural };
        match namespace {
            // kube does not escape it.
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
