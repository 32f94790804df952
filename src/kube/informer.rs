//! Lists all objects of a kind and yields every change to them, for ever.
//!
//! There is one list-and-watch, `list_watch`, for every kind. Its events, [`InformerEvent`], are those
//! of kube-rs's `watcher`. A list is yielded whole, up to
//! [`InformerEvent::InitDone`], or begins again with [`InformerEvent::Init`]; events come in the server's
//! order; a watch that breaks is opened again at the version it had; one object that cannot be read
//! does not end the list or watch that it came in. An [`EventHandler`] keeps what it needs of
//! the objects; [`self::cache`] finds what vanished between two lists.
//!
//! Lists are not requested as the beginning of a watch (`sendInitialEvents`): that would spare one
//! request a list and the right to `list`, but for 100,000 volumes it costs a server 9.1 s where pages
//! cost 1.5 s. As kube-rs requests it, at version 0, such a list may also be as old as the server's
//! watch cache, while a page without a version is a consistent read (safety rules 6 and 10).

mod backoff;
pub mod cache;
mod failure;
mod first_list;
mod list;
mod list_watch;
mod pages;
mod reporter;
mod source;
mod tolerant;
mod watch;

#[cfg(any(test, feature = "fuzzing"))]
pub use self::{pages::fuzz, watch::fuzz as watch_fuzz};
pub use cache::{Cache, Change};
pub use first_list::{Extent, FirstList};

#[cfg(test)]
mod tests;

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use tokio::sync::Notify;

use self::{list_watch::ListWatch, reporter::Reporter, source::Source};
use super::{client::Client, objects::View, scope::Scope};
use crate::{metrics::Metrics, runtime::Random};

/// An event of an informer. The names are those of kube-rs's `watcher::Event`.
#[derive(Debug, Clone, PartialEq)]
pub enum InformerEvent<V> {
    /// A new list begins.
    Init,
    /// An object of the list.
    InitApply(V),
    /// The list is complete: any object that was known and is not in it has vanished.
    InitDone,
    /// An object was created or changed.
    Apply(V),
    /// An object was deleted; this is its last state.
    Delete(V),
    /// An object of the list, or one that was created or changed, cannot be read.
    Unreadable {
        /// Its namespace; empty if it has none.
        namespace: String,
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
}

impl<V> InformerEvent<V> {
    /// Replaces the object by what `view` makes of it.
    pub fn map<W>(self, view: impl FnOnce(V) -> W) -> InformerEvent<W> {
        match self {
            Self::Init => InformerEvent::Init,
            Self::InitApply(object) => InformerEvent::InitApply(view(object)),
            Self::InitDone => InformerEvent::InitDone,
            Self::Apply(object) => InformerEvent::Apply(view(object)),
            Self::Delete(object) => InformerEvent::Delete(view(object)),
            Self::Unreadable { namespace, name, uid } => {
                InformerEvent::Unreadable { namespace, name, uid }
            }
        }
    }
}

/// Receives the events of an informer, one at a time and in order.
pub trait EventHandler<V>: Send {
    /// Handles an event; must not block.
    fn on_event(&mut self, event: InformerEvent<V>);
}

impl<V, F: FnMut(InformerEvent<V>) + Send> EventHandler<V> for F {
    fn on_event(&mut self, event: InformerEvent<V>) {
        self(event);
    }
}

/// Times and sizes of an informer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InformerSettings {
    /// Objects in a page of a list.
    pub page_size: u32,
    /// Objects on the first page of a list whose rest is requested at once; none if the whole list is
    /// requested in pages of `page_size`.
    pub first_page: Option<u32>,
    /// The server ends a watch after this time. A watch that is silent for a little longer is dead.
    pub watch_timeout: Duration,
}

impl Default for InformerSettings {
    /// 500 objects on the first page and the rest at once, or in pages of 5,000 if that fails; 240 s,
    /// which load balancers allow.
    fn default() -> Self {
        Self { page_size: 5_000, first_page: Some(500), watch_timeout: Duration::from_secs(240) }
    }
}

/// Lists and watches one kind.
pub struct Informer<V> {
    client: Client,
    scope: Scope,
    settings: InformerSettings,
    random: Arc<dyn Random>,
    metrics: Metrics,
    relist: Arc<Notify>,
    view: PhantomData<fn() -> V>,
}

impl<V> fmt::Debug for Informer<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl<V: View> Informer<V> {
    /// An informer of the objects in `scope`.
    pub fn new(client: &Client, scope: Scope, random: Arc<dyn Random>, metrics: &Metrics) -> Self {
        Self {
            client: client.clone(),
            scope,
            settings: InformerSettings::default(),
            random,
            metrics: metrics.clone(),
            relist: Arc::default(),
            view: PhantomData,
        }
    }

    /// With other times and sizes than the default.
    #[cfg(test)]
    pub(crate) fn with_settings(self, settings: InformerSettings) -> Self {
        Self { settings, ..self }
    }

    /// Lists everything again whenever `requested` is notified: the objects from that
    /// [`InformerEvent::Init`] on are not older than the notification.
    #[must_use]
    pub fn relist_when(self, requested: Arc<Notify>) -> Self {
        Self { relist: requested, ..self }
    }

    /// Passes all events to `handler`: the list, then changes. Never returns; dropping the future ends
    /// the watch.
    pub async fn run(self, mut handler: impl EventHandler<V>) {
        let mut events = self.list_watch();
        loop {
            let forward = async {
                loop {
                    handler.on_event(events.next().await);
                }
            };
            tokio::select! {
                biased;
                () = self.relist.notified() => {}
                () = forward => {}
            }
            events.relist();
        }
    }

    /// Lists everything once, as it is at the request or later, and tries until that succeeds. Passes
    /// each object to `handler` ([`InformerEvent::InitApply`], [`InformerEvent::Unreadable`]), perhaps several
    /// times. Returns the version of the list, if it is a number.
    pub async fn list_once(self, mut handler: impl EventHandler<V>) -> Option<u64> {
        let mut events = self.list_watch();
        loop {
            match events.next().await {
                InformerEvent::InitDone => return events.version()?.parse().ok(),
                InformerEvent::Init => {}
                event => handler.on_event(event),
            }
        }
    }

    fn list_watch(&self) -> ListWatch<V> {
        let InformerSettings { watch_timeout, .. } = self.settings;
        let source = Source::new::<V>(self.client.clone(), self.scope.clone(), self.settings);
        let reporter = Reporter::new::<V>(&self.metrics);
        ListWatch::new(source, watch_timeout, Arc::clone(&self.random), reporter)
    }
}
