//! What a reflector logs and counts.
//!
//! Promises that a missing right and an unreadable object are told once, not at every try, and
//! that nothing told holds an object's content.

use std::collections::BTreeSet;

use kube::{core::Status, runtime::watcher};

use super::{listing::Step, tolerant::Tolerant};
use crate::{
    kube::{
        error::{fault, with_sources},
        objects::{View, kind::Kind},
    },
    metrics::{ApiMetrics, Metrics},
};

/// So many unreadable objects are remembered as told; further ones are only counted.
const MAX_TOLD: usize = 1024;

/// Tells of one reflector's troubles.
#[derive(Debug)]
pub(super) struct Reporter {
    kind: Kind,
    metrics: ApiMetrics,
    forbidden: bool,
    unreadable: BTreeSet<Box<str>>,
}

impl Reporter {
    /// Tells of objects that `V` reads.
    pub(super) fn new<V: View>(metrics: &Metrics) -> Self {
        Self {
            kind: Kind::of::<V>(),
            metrics: metrics.api.clone(),
            forbidden: false,
            unreadable: BTreeSet::new(),
        }
    }

    /// The watcher failed, and `step` is done about it.
    pub(super) fn failed(&mut self, error: &watcher::Error, step: Step) {
        let (resource, text) = (self.kind.resource(), describe(error));
        if status(error).is_some_and(Status::is_forbidden) {
            if !std::mem::replace(&mut self.forbidden, true) {
                tracing::warn!(
                    resource,
                    error = text,
                    "not allowed to list or watch; trying again until it is"
                );
            }
        } else if step == Step::Page {
            tracing::info!(
                resource,
                error = text,
                "cannot stream the list; listing in pages from now on"
            );
        } else {
            tracing::warn!(resource, error = text, "the watch failed; trying again");
        }
    }

    /// A streamed list did not come to its end.
    pub(super) fn silent(&self) {
        tracing::info!(
            resource = self.kind.resource(),
            "the streamed list does not end; listing in pages from now on"
        );
    }

    /// The watch shows something, so the right is there.
    pub(super) fn watched(&mut self) {
        self.forbidden = false;
    }

    /// An object went past.
    pub(super) fn shown<V: View>(&mut self, object: &Tolerant<V>) {
        let Tolerant::Unreadable { metadata, fault } = object else { return };
        self.metrics.unreadable(&self.kind.plural);
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name) = (text(&metadata.namespace), text(&metadata.name));
        let key = format!("{namespace}/{name}").into_boxed_str();
        if self.unreadable.len() < MAX_TOLD && self.unreadable.insert(key) {
            let resource = self.kind.resource();
            tracing::error!(
                resource,
                namespace,
                name,
                fault,
                "cannot read an object; it is skipped"
            );
        }
    }
}

/// What the server said, where it said something.
fn status(error: &watcher::Error) -> Option<&Status> {
    match error {
        watcher::Error::WatchError(status)
        | watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => Some(status),
        _ => None,
    }
}

/// The error in words, without any object's content.
fn describe(error: &watcher::Error) -> String {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    match (status(error), error) {
        (Some(status), _) => format!("{} ({})", status.message, status.code),
        (None, InitialListFailed(cause) | WatchStartFailed(cause) | WatchFailed(cause)) => {
            match cause {
                kube::Error::SerdeError(error) => fault(error),
                cause => with_sources(cause),
            }
        }
        (None, error) => error.to_string(),
    }
}
