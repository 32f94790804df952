//! Lists all objects of a kind and yields every change to them, for ever.
//!
//! An adaptor over kube-rs's [`watcher()`] for every kind. It lists in pages, watches, opens a watch again where
//! the last one ended, and lists again when the server has forgotten the version of an open watch. Added
//! here: failures are reported and waited out; a version that the server refuses at the opening of a watch
//! five times in a row is given up; one object that cannot be read does not end the list or watch that it
//! came in.
//!
//! Its events, [`InformerEvent`], are the watcher's. A list is yielded whole, up to
//! [`InformerEvent::InitDone`], or begins again; events come in the server's order. A handler keeps what it
//! needs of the objects. What vanished between two lists is not [`Listed`] by the second one.
//!
//! Lists are not requested as the beginning of a watch (`sendInitialEvents`): that would spare one
//! request a list and the right to `list`, but for 100,000 volumes it costs a server 9.1 s where pages
//! cost 7.3 s. As kube-rs requests it, at version 0, such a list may also be as old as the server's
//! watch cache, while a page without a version is a consistent read (safety rules 6 and 10).

mod backoff;
mod event;
mod first_list;
mod listed;
mod reporter;
mod tolerant;

#[cfg(any(test, feature = "fuzzing"))]
pub use self::tolerant::fuzz;
pub use event::InformerEvent;
pub use first_list::FirstList;
pub(crate) use listed::hash;
pub use listed::{Listed, take_vanished};

#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::{StreamExt as _, stream::BoxStream};
use kube::{
    Api,
    runtime::watcher::{self, Error, Event, watcher},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use self::{
    backoff::InformerBackoff,
    reporter::Reporter,
    tolerant::{Tolerant, Unreadable},
};
use super::{
    client::Client,
    error::ApiError,
    objects::{self, Metadata, View, kind::Kind},
    scope::Scope,
    url::segment,
};
use crate::{metrics::Metrics, runtime::Random};

/// Objects in a page of a list: some 4 MB with their `managedFields`.
const PAGE_SIZE: u32 = 1000;

/// After how many seconds the server ends a watch: load balancers allow that. One that is silent for five
/// seconds longer is dead.
const WATCH_SECONDS: u32 = 240;

/// How many refused watches in a row make the informer list everything again: a server may refuse a version
/// that it has forgotten, or does not know yet, with other codes than 410.
const MAX_REFUSALS: u32 = 5;

/// Lists and watches one kind.
pub struct Informer<V: View> {
    api: Api<Tolerant<V>>,
    config: watcher::Config,
    /// What the list in progress has shown.
    listed: Listed,
    /// How often in a row a watch was refused.
    refusals: u32,
    backoff: InformerBackoff,
    random: Arc<dyn Random>,
    reporter: Reporter,
}

impl<V: View> Informer<V> {
    /// An informer of the objects in `scope`.
    pub fn new(client: &Client, scope: Scope, random: Arc<dyn Random>, metrics: &Metrics) -> Self {
        Self::with_pages(PAGE_SIZE, client, scope, random, metrics)
    }

    pub(super) fn with_pages(
        page_size: u32,
        client: &Client,
        scope: Scope,
        random: Arc<dyn Random>,
        metrics: &Metrics,
    ) -> Self {
        let client = client.for_watcher(page_size);
        let api = match &scope.namespace {
            Some(namespace) => Api::namespaced_with(client, &segment(namespace), &()),
            None => Api::all(client),
        };
        let config = watcher::Config {
            label_selector: scope.labels,
            field_selector: scope.fields,
            timeout: Some(WATCH_SECONDS),
            page_size: Some(page_size),
            ..watcher::Config::default()
        };
        Self {
            api,
            config,
            listed: Listed::default(),
            refusals: 0,
            backoff: InformerBackoff::default(),
            random,
            reporter: Reporter::new::<V>(metrics),
        }
    }

    /// Passes all events to `handler`, which must not block: the list, then changes, one at a time and in order.
    /// Never returns; dropping the future ends the watch.
    pub async fn run(mut self, mut handler: impl FnMut(InformerEvent<V>) + Send) {
        let mut events = self.events();
        loop {
            match events.next().await {
                Some(Ok(event)) => {
                    if let Some(event) = self.event(event) {
                        handler(event);
                    }
                }
                Some(Err(error)) => {
                    if self.gives_version_up(error) {
                        events = self.events();
                    }
                    sleep(self.backoff.wait(Instant::now(), self.random.unit())).await;
                }
                // The watcher never ends.
                None => events = self.events(),
            }
        }
    }

    /// The events of a new watcher. Its list names no version, so the server reads consistently.
    fn events(&self) -> BoxStream<'static, watcher::Result<Event<Tolerant<V>>>> {
        watcher(self.api.clone(), self.config.clone()).boxed()
    }

    /// The event of what the watcher yields; none if it changes no object.
    fn event(&mut self, event: Event<Tolerant<V>>) -> Option<InformerEvent<V>> {
        match &event {
            // Whatever an earlier list has shown before it broke off.
            Event::Init => self.listed = Listed::default(),
            Event::InitApply(object) => self.listed.add(object.uid()),
            Event::InitDone => self.refusals = 0,
            Event::Apply(_) | Event::Delete(_) => {
                self.refusals = 0;
                self.reporter.report_watched();
            }
        }
        Some(match event {
            Event::Init => return None,
            Event::InitApply(object) => self.event_of(object, InformerEvent::InitApply),
            Event::InitDone => InformerEvent::InitDone(self.listed.take()),
            Event::Apply(object) => self.event_of(object, InformerEvent::Apply),
            Event::Delete(Tolerant { object: Ok(object), .. }) => InformerEvent::Delete(object),
            Event::Delete(Tolerant { object: Err(unreadable), .. }) => {
                self.reporter.report_unreadable(&unreadable.metadata, &unreadable.fault);
                // For a deletion the names are enough.
                return named(&unreadable.metadata).map(InformerEvent::Delete);
            }
        })
    }

    /// Makes the `event` of an object. If the object cannot be read, reports that and makes the event
    /// that says so.
    fn event_of(
        &mut self,
        object: Tolerant<V>,
        event: fn(V) -> InformerEvent<V>,
    ) -> InformerEvent<V> {
        match object.object {
            Ok(object) => event(object),
            Err(Unreadable { metadata, fault }) => {
                self.reporter.report_unreadable(&metadata, &fault);
                InformerEvent::Unreadable {
                    namespace: metadata.namespace.unwrap_or_default().into(),
                    name: metadata.name.unwrap_or_default().into(),
                    uid: metadata.uid.unwrap_or_default().to_string(),
                }
            }
        }
    }

    /// Reports a failure. The watcher would begin its list again, or open its watch at the version it had,
    /// unless this returns that no watch can go on there.
    fn gives_version_up(&mut self, error: Error) -> bool {
        let about = Kind::of::<V>().resource();
        let (error, is_of_watch) = match error {
            Error::InitialListFailed(error) => (ApiError::of_kube(error, &about), false),
            Error::WatchStartFailed(error) | Error::WatchFailed(error) => {
                (ApiError::of_kube(error, &about), true)
            }
            Error::WatchError(status) => (ApiError::from(*status), true),
            // The watcher lists again by itself.
            Error::NoResourceVersion => {
                let fault = "no resourceVersion".to_owned();
                (ApiError::Unreadable { about, fault }, false)
            }
        };
        self.reporter.report_failure(&error);
        match error {
            _ if !is_of_watch => false,
            ApiError::Refused(refusal) => {
                self.refusals += 1;
                refusal.code == 410 || self.refusals == MAX_REFUSALS
            }
            // The next event is too large, or one is lost, as kube-rs goes on with the one after it.
            ApiError::TooLarge { .. } | ApiError::Unreadable { .. } => true,
            // A connection that failed says nothing about the version.
            _ => false,
        }
    }
}

/// A view that holds nothing but these names.
fn named<V: View>(metadata: &Metadata) -> Option<V> {
    let Metadata { name, namespace, uid, resource_version, .. } = metadata;
    let names = json!({
        "name": name, "namespace": namespace, "uid": uid, "resourceVersion": resource_version,
    });
    objects::of_json(&json!({"metadata": names})).ok()
}
