//! Lists all objects of a kind and yields every change to them, for ever.
//!
//! An adaptor over kube-rs's `watcher`, `list_watch`, for every kind. Its events, [`InformerEvent`], are
//! the watcher's. A list is yielded whole, up to [`InformerEvent::InitDone`], or begins again; events come in
//! the server's order; a watch that breaks is opened again at the version it had; one object that cannot be
//! read does not end the list or watch that it came in. An [`EventHandler`] keeps what it needs of the
//! objects. What vanished between two lists is not [`Listed`] by the second one.
//!
//! Lists are not requested as the beginning of a watch (`sendInitialEvents`): that would spare one
//! request a list and the right to `list`, but for 100,000 volumes it costs a server 9.1 s where pages
//! cost 7.3 s. As kube-rs requests it, at version 0, such a list may also be as old as the server's
//! watch cache, while a page without a version is a consistent read (safety rules 6 and 10).

mod backoff;
mod failure;
mod first_list;
mod list_watch;
mod listed;
mod reporter;
mod tolerant;

#[cfg(any(test, feature = "fuzzing"))]
pub use self::tolerant::fuzz;
pub use first_list::{Extent, FirstList};
pub(crate) use listed::hash;
pub use listed::{Listed, take_vanished};

#[cfg(test)]
mod tests;

use std::{fmt, marker::PhantomData, sync::Arc};

use self::{list_watch::ListWatch, reporter::Reporter};
use super::{client::Client, objects::View, scope::Scope};
use crate::{metrics::Metrics, runtime::Random};

/// An event of an informer. The names are those of kube-rs's `watcher::Event`.
#[derive(Debug, Clone, PartialEq)]
pub enum InformerEvent<V> {
    /// An object of a list, which may break off and begin again.
    InitApply(V),
    /// The list is complete: an object that was known and is not in it has vanished.
    InitDone(Listed),
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
            Self::InitApply(object) => InformerEvent::InitApply(view(object)),
            Self::InitDone(listed) => InformerEvent::InitDone(listed),
            Self::Apply(object) => InformerEvent::Apply(view(object)),
            Self::Delete(object) => InformerEvent::Delete(view(object)),
            Self::Unreadable { namespace, name, uid } => {
                InformerEvent::Unreadable { namespace, name, uid }
            }
        }
    }
}

impl<V: View> InformerEvent<V> {
    /// The events of a list of these objects.
    pub fn list(objects: Vec<V>) -> impl Iterator<Item = Self> {
        let listed = Listed::of(&objects);
        objects.into_iter().map(Self::InitApply).chain([Self::InitDone(listed)])
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

/// Objects in a page of a list: some 4 MB with their `managedFields`.
const PAGE_SIZE: u32 = 1000;

/// Lists and watches one kind.
pub struct Informer<V> {
    client: Client,
    scope: Scope,
    page_size: u32,
    random: Arc<dyn Random>,
    metrics: Metrics,
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
            page_size: PAGE_SIZE,
            random,
            metrics: metrics.clone(),
            view: PhantomData,
        }
    }

    /// With other pages than the default.
    #[cfg(test)]
    pub(crate) fn with_page_size(self, page_size: u32) -> Self {
        Self { page_size, ..self }
    }

    /// Passes all events to `handler`: the list, then changes. Never returns; dropping the future ends
    /// the watch.
    pub async fn run(self, mut handler: impl EventHandler<V>) {
        let mut events = self.list_watch();
        loop {
            handler.on_event(events.next().await);
        }
    }

    fn list_watch(&self) -> ListWatch<V> {
        let (scope, random) = (self.scope.clone(), Arc::clone(&self.random));
        let reporter = Reporter::new::<V>(&self.metrics);
        ListWatch::new(&self.client, scope, self.page_size, random, reporter)
    }
}
