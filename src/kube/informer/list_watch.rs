//! The list-and-watch loop: one state machine for every kind.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    InformerEvent, backoff::InformerBackoff, failure::Failure, list::List, reporter::Reporter,
    source::Source, tolerant::Tolerant, watch::Events,
};
use crate::{
    kube::{
        client::watch::WatchEvent,
        objects::{self, Metadata, View},
    },
    runtime::Random,
};

/// How much longer than the server keeps a watch open it may be silent.
const MARGIN: Duration = Duration::from_secs(5);

/// The least time from the beginning of one watch to that of the next: a server, or a proxy before it, may
/// end every watch at once.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// After so many refused watches in a row everything is listed again: a server may refuse a version
/// that it has forgotten, or does not know yet, with other codes than 410.
const MAX_REFUSALS: u32 = 5;

/// What a [`ListWatch`] does in its next step.
enum State<V: View> {
    /// Nothing is listed, or everything must be listed again: the step announces a list.
    Unlisted,
    /// The list is read: the step yields its next object, or completes it.
    Listing(Box<List<V>>),
    /// All changes up to this version are known: the step opens a watch that goes on there.
    Listed(String),
    /// A watch is open: the step yields its next change. If the watch ends, is silent for too long or
    /// fails, another one is opened at the version; if the version is lost, everything is listed again.
    Watching(String, Events<V>),
}

/// Yields the objects of a kind, then their changes, for ever.
pub(super) struct ListWatch<V: View> {
    source: Source,
    state: State<V>,
    /// How long a watch may be silent.
    silence: Duration,
    /// How often in a row a watch was refused.
    refusals: u32,
    /// Before this no watch is opened.
    next_watch: Instant,
    backoff: InformerBackoff,
    random: Arc<dyn Random>,
    reporter: Reporter,
}

impl<V: View> ListWatch<V> {
    /// Begins with a list. The server is asked to end watches after `watch_timeout`.
    pub(super) fn new(
        source: Source,
        watch_timeout: Duration,
        random: Arc<dyn Random>,
        reporter: Reporter,
    ) -> Self {
        Self {
            source,
            state: State::Unlisted,
            silence: watch_timeout + MARGIN,
            refusals: 0,
            next_watch: Instant::now(),
            backoff: InformerBackoff::default(),
            random,
            reporter,
        }
    }

    /// Begins again with a list, whatever is under way.
    pub(super) fn relist(&mut self) {
        self.state = State::Unlisted;
    }

    /// The version up to which everything was yielded, once the list is complete.
    pub(super) fn version(&self) -> Option<&str> {
        match &self.state {
            State::Listed(version) | State::Watching(version, _) => Some(version),
            State::Unlisted | State::Listing(_) => None,
        }
    }

    /// Waits for the next event. Failures are reported and waited out. If the future is dropped,
    /// [`Self::relist`] must follow.
    pub(super) async fn next(&mut self) -> InformerEvent<V> {
        loop {
            match self.step().await {
                Ok(Some(event)) => return event,
                Ok(None) => {}
                Err(failure) => {
                    self.reporter.report_failure(&failure);
                    self.recover(&failure);
                    sleep(self.backoff.wait(Instant::now(), self.random.unit())).await;
                }
            }
        }
    }

    /// Does what the state says. Returns none where that yields nothing.
    async fn step(&mut self) -> Result<Option<InformerEvent<V>>, Failure> {
        match &mut self.state {
            State::Unlisted => {
                self.state = State::Listing(Box::new(List::new()));
                Ok(Some(InformerEvent::Init))
            }
            State::Listing(list) => {
                if let Some(object) = list.next(&self.source).await.map_err(Failure::List)? {
                    return Ok(Some(self.event_of(object, InformerEvent::InitApply)));
                }
                let version = list.version().ok_or(Failure::NoVersion)?.to_owned();
                self.state = State::Listed(version);
                self.refusals = 0;
                Ok(Some(InformerEvent::InitDone))
            }
            State::Listed(version) => {
                sleep_until(self.next_watch).await;
                self.next_watch = Instant::now() + WATCH_INTERVAL;
                let changes = self.source.watch(version).await;
                let changes = changes.map_err(|error| Failure::Watch(error.into()))?;
                self.state = State::Watching(std::mem::take(version), changes);
                Ok(None)
            }
            State::Watching(version, changes) => {
                let Ok(Some(change)) = timeout(self.silence, changes.next()).await else {
                    self.state = State::Listed(std::mem::take(version));
                    return Ok(None);
                };
                let change = change.map_err(Failure::Watch)?;
                version_of(&change)?.clone_into(version);
                self.refusals = 0;
                self.reporter.report_watched();
                Ok(self.change_event(change))
            }
        }
    }

    /// The event of what a watch yields; none if it changes no object.
    fn change_event(&mut self, change: WatchEvent<Tolerant<V>>) -> Option<InformerEvent<V>> {
        match change {
            WatchEvent::Applied(object) => Some(self.event_of(object, InformerEvent::Apply)),
            WatchEvent::Deleted(Tolerant::Unreadable { metadata, fault }) => {
                self.reporter.report_unreadable(&metadata, &fault);
                // For a deletion the names are enough.
                named(&metadata).map(InformerEvent::Delete)
            }
            WatchEvent::Deleted(Tolerant::Read(object)) => Some(InformerEvent::Delete(object)),
            WatchEvent::Bookmark(_) => None,
        }
    }

    /// Makes the `event` of an object. If the object cannot be read, reports that and makes the event
    /// that says so.
    fn event_of(
        &mut self,
        object: Tolerant<V>,
        event: fn(V) -> InformerEvent<V>,
    ) -> InformerEvent<V> {
        match object {
            Tolerant::Read(object) => event(object),
            Tolerant::Unreadable { metadata, fault } => {
                self.reporter.report_unreadable(&metadata, &fault);
                InformerEvent::Unreadable {
                    namespace: metadata.namespace.unwrap_or_default().into(),
                    name: metadata.name.unwrap_or_default().into(),
                    uid: metadata.uid.unwrap_or_default().to_string(),
                }
            }
        }
    }

    /// Moves to the state after a failure: a list begins again, and a watch is opened again at its
    /// version, unless that is lost.
    fn recover(&mut self, failure: &Failure) {
        self.refusals += u32::from(failure.is_refused_watch());
        let keeps_version = !failure.loses_version() && self.refusals < MAX_REFUSALS;
        let is_past_first_page =
            matches!(&self.state, State::Listing(list) if list.is_past_first_page());
        self.source.adapt(is_past_first_page);
        self.state = match std::mem::replace(&mut self.state, State::Unlisted) {
            State::Listed(version) | State::Watching(version, _) if keeps_version => {
                State::Listed(version)
            }
            State::Unlisted | State::Listing(_) | State::Listed(_) | State::Watching(..) => {
                State::Unlisted
            }
        };
    }
}

/// The version at which a watch goes on after `change`.
fn version_of<V: View>(change: &WatchEvent<Tolerant<V>>) -> Result<&str, Failure> {
    let version = match change {
        WatchEvent::Applied(object) | WatchEvent::Deleted(object) => {
            object.meta().resource_version.as_deref()
        }
        WatchEvent::Bookmark(bookmark) => Some(&*bookmark.metadata.resource_version),
    };
    version.filter(|version| !version.is_empty()).ok_or(Failure::NoVersion)
}

/// A view that holds nothing but these names.
fn named<V: View>(metadata: &Metadata) -> Option<V> {
    let Metadata { name, namespace, uid, resource_version, .. } = metadata;
    let names = json!({
        "name": name, "namespace": namespace, "uid": uid, "resourceVersion": resource_version,
    });
    objects::of_json(&json!({"metadata": names})).ok()
}
