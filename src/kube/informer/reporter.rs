//! What an informer logs and counts.
//!
//! A missing right, a missing kind and an unreadable object are reported once, not at every attempt.
//! Nothing reported holds an object's content.

use std::collections::BTreeSet;

use super::failure::Failure;
use crate::{
    kube::objects::{Metadata, View, kind::Kind},
    metrics::{ApiMetrics, Metrics},
};

/// So many unreadable objects are remembered as reported; further ones are only counted.
const MAX_REPORTED: usize = 1024;

/// Reports the failures and unreadable objects of one informer.
#[derive(Debug)]
pub(super) struct Reporter {
    kind: Kind,
    metrics: ApiMetrics,
    /// The lasting refusal that was reported, until a watch yields something.
    refusal: Option<Refusal>,
    unreadable: BTreeSet<Box<str>>,
}

/// A refusal that lasts until somebody changes the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// The right to list or watch is missing.
    Forbidden,
    /// The server does not serve the kind.
    UnknownKind,
}

impl Refusal {
    fn of(failure: &Failure) -> Option<Self> {
        let refusal = failure.refusal()?;
        if refusal.is_forbidden() {
            Some(Self::Forbidden)
        } else if refusal.code == 404 {
            Some(Self::UnknownKind)
        } else {
            None
        }
    }
}

impl Reporter {
    /// Reports about objects that `V` reads.
    pub(super) fn new<V: View>(metrics: &Metrics) -> Self {
        Self {
            kind: Kind::of::<V>(),
            metrics: metrics.api.clone(),
            refusal: None,
            unreadable: BTreeSet::new(),
        }
    }

    /// Logs a failure, unless it is a lasting refusal that was reported already.
    pub(super) fn report_failure(&mut self, failure: &Failure) {
        let (resource, error) = (self.kind.resource(), describe(failure));
        let refusal = Refusal::of(failure);
        if refusal.is_some() && refusal == self.refusal {
            return;
        }
        self.refusal = refusal.or(self.refusal);
        match refusal {
            Some(Refusal::Forbidden) => tracing::warn!(
                resource,
                error,
                "not allowed to list or watch; trying again until it is"
            ),
            Some(Refusal::UnknownKind) => tracing::warn!(
                resource,
                error,
                "the API server does not serve the kind; trying again until it does"
            ),
            None => tracing::warn!(resource, error, "the watch failed; trying again"),
        }
    }

    /// A watch has yielded something, so the kind is served and the right is there: a later refusal is
    /// reported again.
    pub(super) fn report_watched(&mut self) {
        self.refusal = None;
    }

    /// Counts an object that cannot be read, and logs it the first time.
    pub(super) fn report_unreadable(&mut self, metadata: &Metadata, fault: &str) {
        self.metrics.unreadable(&self.kind.plural);
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        let key = format!("{namespace}/{name}").into_boxed_str();
        if self.unreadable.len() < MAX_REPORTED && self.unreadable.insert(key) {
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

/// Describes a failure without any object's content.
fn describe(failure: &Failure) -> String {
    if let Some(refusal) = failure.refusal() {
        return format!("{refusal} ({})", refusal.code);
    }
    match failure {
        Failure::List(error) | Failure::Watch(error) => error.to_string(),
        Failure::NoVersion => "no resourceVersion in a list or an event".to_owned(),
    }
}
