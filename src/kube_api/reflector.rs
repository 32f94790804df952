//! Shows all objects of a kind and every change to them, for ever.
//!
//! Owns what kube's watcher lacks: streamed lists with a fall-back to paged ones, recovery from a
//! version the server has forgotten, waits after errors, and objects that cannot be read. Promises
//! that sightings come in the server's order, that a list is either told whole
//! ([`Sighting::Complete`]) or begun anew, that a broken connection is resumed where it broke and
//! costs no list, and that one bad object costs only itself. Leaves to its observer what is kept;
//! [`super::cache`] tells what vanished between two lists.

mod backoff;
mod listing;
mod tolerant;

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, marker::PhantomData, pin::pin, sync::Arc, time::Duration};

use futures::{Stream, StreamExt as _};
use kube::{
    Api, Resource as _,
    runtime::watcher::{self, Event, watcher},
};
use tokio::time::{Instant, sleep, timeout_at};

use self::{
    backoff::Backoff,
    listing::{Progress, Step, Strategy},
    tolerant::Tolerant,
};
use super::{client::Client, error::fault, kind::Kind, name::BadName, views::View};
use crate::{metrics::Metrics, runtime::Random};

/// So many unreadable objects are remembered as told.
const MAX_TOLD: usize = 1024;

/// One thing a reflector shows.
#[derive(Debug, Clone, PartialEq)]
pub enum Sighting<V> {
    /// A new full list begins.
    Restarted,
    /// An object in the list.
    Listed(V),
    /// The list is whole: what was kept and not seen since [`Sighting::Restarted`] has vanished.
    Complete,
    /// An object is new or has changed.
    Applied(V),
    /// An object was deleted; this is its last state.
    Deleted(V),
    /// An object exists, in the list or changed, but cannot be read.
    Unreadable {
        /// Its namespace; empty where it has none.
        namespace: String,
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
}

/// Who is shown things. Called one at a time, in order.
pub trait Observer<V>: Send {
    /// Takes in one sighting; must not block.
    fn observe(&mut self, sighting: Sighting<V>);
}

impl<V, F: FnMut(Sighting<V>) + Send> Observer<V> for F {
    fn observe(&mut self, sighting: Sighting<V>) {
        self(sighting);
    }
}

/// Which objects of a kind are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    namespace: Option<String>,
    labels: Option<String>,
    fields: Option<String>,
}

impl Scope {
    /// All objects of the kind.
    pub fn all() -> Self {
        Self::default()
    }

    /// The objects in `namespace`.
    ///
    /// # Errors
    /// [`BadName`] when that cannot stand in a URL.
    pub fn namespace(namespace: &str) -> Result<Self, BadName> {
        super::name::check_namespace(namespace)?;
        Ok(Self { namespace: Some(namespace.to_owned()), ..Self::default() })
    }

    /// Only objects whose labels fit `selector`.
    #[must_use]
    pub fn labelled(self, selector: &str) -> Self {
        Self { labels: Some(selector.to_owned()), ..self }
    }

    /// Only the object called `name`.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { fields: Some(format!("metadata.name={name}")), ..self }
    }
}

/// Times and sizes of a reflector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Objects in a page of a list.
    pub page_size: u32,
    /// The server ends a watch after this time; one that has been silent a little longer is dead.
    pub watch_timeout: Duration,
    /// A streamed list that has been silent so long will never end.
    pub list_quiet: Duration,
    /// A streamed list must be whole after this time.
    pub list_whole: Duration,
}

impl Default for Settings {
    /// 500 objects a page; 240 s, which load balancers put up with; 5 s; 60 s.
    fn default() -> Self {
        Self {
            page_size: 500,
            watch_timeout: Duration::from_secs(240),
            list_quiet: Duration::from_secs(5),
            list_whole: Duration::from_secs(60),
        }
    }
}

/// Lists and watches one kind.
pub struct Reflector<V> {
    client: Client,
    scope: Scope,
    settings: Settings,
    random: Arc<dyn Random>,
    metrics: Metrics,
    view: PhantomData<fn() -> V>,
}

impl<V> std::fmt::Debug for Reflector<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reflector").field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl<V: View> Reflector<V> {
    /// A reflector of the objects in `scope`.
    pub fn new(
        client: &Client,
        scope: Scope,
        settings: Settings,
        random: Arc<dyn Random>,
        metrics: &Metrics,
    ) -> Self {
        Self {
            client: client.clone(),
            scope,
            settings,
            random,
            metrics: metrics.clone(),
            view: PhantomData,
        }
    }

    /// Shows `observer` everything. Never returns; whoever drops the future ends the watch.
    pub async fn run(self, mut observer: impl Observer<V>) {
        let _ = (&self, &mut observer);
        std::future::pending::<()>().await;
    }
}
