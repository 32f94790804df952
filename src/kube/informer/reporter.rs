//! What an informer logs and counts.
//!
//! A missing right, a missing kind and an unreadable object are reported once, not at every attempt.
//! Nothing reported holds an object's content.

use std::collections::BTreeSet;

use crate::{
    kube::{
        error::ApiError,
        objects::{Metadata, View, kind::Kind},
    },
    metrics::{ApiMetrics, Metrics},
};

/// So many unreadable objects are remembered as reported; further ones are only counted.
const MAX_REPORTED: usize = 1024;

/// Reports the failures and unreadable objects of one informer.
#[derive(Debug)]
pub(super) struct Reporter {
    kind: Kind,
    metrics: ApiMetrics,
    /// The code of the lasting refusal that was reported, until a watch yields something.
    lasting: Option<u16>,
    unreadable: BTreeSet<Box<str>>,
}

impl Reporter {
    /// Reports about objects that `V` reads.
    pub(super) fn new<V: View>(metrics: &Metrics) -> Self {
        Self {
            kind: Kind::of::<V>(),
            metrics: metrics.api.clone(),
            lasting: None,
            unreadable: BTreeSet::new(),
        }
    }

    /// Logs a failure, unless it is a lasting refusal that was reported already.
    pub(super) fn report_failure(&mut self, error: &ApiError) {
        let (resource, code) = (self.kind.resource(), error.code());
        // The right is missing, or the kind: until somebody changes the cluster.
        let lasting = code.filter(|code| matches!(code, 403 | 404));
        if lasting.is_some() && lasting == self.lasting {
            return;
        }
        self.lasting = lasting.or(self.lasting);
        let what = match lasting {
            Some(403) => "not allowed to list or watch; trying again until it is",
            Some(_) => "the API server does not serve the kind; trying again until it does",
            None => "the watch failed; trying again",
        };
        let code = code.map(|code| format!(" ({code})")).unwrap_or_default();
        tracing::warn!(resource, error = format!("{error}{code}"), "{what}");
    }

    /// A watch has yielded something, so the kind is served and the right is there: a later refusal is
    /// reported again.
    pub(super) fn report_watched(&mut self) {
        self.lasting = None;
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
