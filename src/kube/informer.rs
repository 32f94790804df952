//! Shows all objects of a kind and every change to them, for ever.
//!
//! Owns what kube's watcher lacks: streamed lists with a fall-back to paged ones, long ones that are
//! read while they come (`listed`, `pages`), recovery from a
//! version the server has forgotten, waits after errors, and objects that cannot be read. Promises
//! that sightings come in the server's order, that a list is either told whole
//! ([`InformerEvent::InitDone`]) or begun anew, that a broken connection is resumed where it broke and
//! costs no list, and that one bad object costs only itself. Leaves to its observer what is kept;
//! [`self::cache`] tells what vanished between two lists.

mod backoff;
pub mod cache;
mod first_list;
mod follow;
mod listed;
mod listing;
mod pages;
mod reporter;
mod tolerant;

#[cfg(any(test, feature = "fuzzing"))]
pub use self::pages::fuzz;
pub use cache::{Cache, Change};
pub use first_list::{Extent, FirstList};

#[cfg(test)]
mod tests;

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream::BoxStream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api,
    runtime::watcher::{self, Event, watcher},
};
use serde_json::json;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout_at},
};

use self::{
    backoff::Backoff,
    listed::{Listed, list_and_watch},
    listing::{Progress, Step, Strategy},
    reporter::Reporter,
    tolerant::Tolerant,
};
use super::{client::Client, connection::url::segment, objects, objects::View, scope::Scope};
use crate::{metrics::Metrics, runtime::Random};

/// One thing a reflector shows.
#[derive(Debug, Clone, PartialEq)]
pub enum InformerEvent<V> {
    /// A new full list begins.
    Init,
    /// An object that stood when the list began.
    InitApply(V),
    /// The list is whole: what was kept and not seen since [`InformerEvent::Init`] has vanished.
    InitDone,
    /// An object is new or has changed.
    Apply(V),
    /// An object was deleted; this is its last state.
    Delete(V),
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

impl<V> InformerEvent<V> {
    /// The same of another view of the object.
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

/// Who is shown things. Called one at a time, in order.
pub trait EventHandler<V>: Send {
    /// Takes in one sighting; must not block.
    fn observe(&mut self, event: InformerEvent<V>);
}

impl<V, F: FnMut(InformerEvent<V>) + Send> EventHandler<V> for F {
    fn observe(&mut self, event: InformerEvent<V>) {
        self(event);
    }
}

/// Times and sizes of a reflector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Objects in a page of a list.
    pub page_size: u32,
    /// Objects on the first page of a list of which the rest is asked for at once
    /// ([`Informer::run_listed`]); none where all of it comes in pages.
    pub first_page: Option<u32>,
    /// The server ends a watch after this time; one that has been silent a little longer is dead.
    pub watch_timeout: Duration,
    /// A streamed list that has begun and is silent for so long will never end.
    pub list_quiet: Duration,
    /// A streamed list must be whole after this time.
    pub list_whole: Duration,
}

impl Default for Settings {
    /// 500 objects a page; 240 s, which load balancers put up with; 5 s; 60 s.
    fn default() -> Self {
        Self {
            page_size: 500,
            first_page: None,
            watch_timeout: Duration::from_secs(240),
            list_quiet: Duration::from_secs(5),
            list_whole: Duration::from_secs(60),
        }
    }
}

impl Settings {
    /// For kinds of which there may be very many, and [`Informer::run_listed`], which holds one
    /// object of a page at a time: 500 objects on the first page, and the rest at once; where that
    /// fails, 5,000 objects a page.
    pub fn of_many() -> Self {
        Self { page_size: 5_000, first_page: Some(500), ..Self::default() }
    }
}

/// Lists and watches one kind.
pub struct Informer<V> {
    client: Client,
    scope: Scope,
    settings: Settings,
    random: Arc<dyn Random>,
    metrics: Metrics,
    anew: Arc<Notify>,
    view: PhantomData<fn() -> V>,
}

impl<V> fmt::Debug for Informer<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl<V: View> Informer<V> {
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
            anew: Arc::default(),
            view: PhantomData,
        }
    }

    /// Lists everything anew whenever `asked`, wherever it is: what is shown from that
    /// [`InformerEvent::Init`] on is not older than the asking.
    #[must_use]
    pub fn anew_when(self, asked: Arc<Notify>) -> Self {
        Self { anew: asked, ..self }
    }

    /// Shows `observer` everything, changes once the list is whole. Never returns; whoever drops the
    /// future ends the watch.
    pub async fn run(self, observer: impl EventHandler<V>) {
        let streams = self.client.may_stream_lists();
        let strategy = if streams { Strategy::Streamed } else { Strategy::Paged };
        self.run_by(Self::watched, strategy, observer).await;
    }

    /// The same; the list is read while it comes. Only for scopes without selectors.
    pub async fn run_listed(self, observer: impl EventHandler<V>) {
        let open = |reflector: &Self, api, _| list_and_watch(api, reflector.settings).boxed();
        self.run_by(open, Strategy::Listed, observer).await;
    }

    /// Lists everything once, as it is at the request or later, however often that must be tried. Shows
    /// `observer` each object ([`InformerEvent::InitApply`], [`InformerEvent::Unreadable`]), some perhaps several
    /// times. Gives the list's version, where that is a number.
    pub async fn list_once(self, mut observer: impl EventHandler<V>) -> Option<u64> {
        let mut listed = Listed::new(self.api(), self.settings);
        let mut backoff = Backoff::default();
        loop {
            match listed.next().await {
                Ok(event @ Event::InitApply(_)) => {
                    if let Some(it) = informer_event(event) {
                        observer.observe(it);
                    }
                }
                Ok(Event::InitDone) => return listed.version()?.parse().ok(),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, kind = %V::kind(&()), "listing failed; it is tried again");
                    sleep(backoff.wait(Instant::now(), self.random.unit())).await;
                }
            }
        }
    }

    fn api(&self) -> Api<Tolerant<V>> {
        let kube = self.client.kube();
        match &self.scope.namespace {
            // kube takes it for a part of the path as it is.
            Some(namespace) => Api::namespaced(kube, &segment(namespace)),
            None => Api::all(kube),
        }
    }

    async fn run_by(self, open: Open<V>, mut strategy: Strategy, observer: impl EventHandler<V>) {
        let api = self.api();
        let anew = Arc::clone(&self.anew);
        let mut run = Run {
            reporter: Reporter::new::<V>(&self.metrics),
            reflector: self,
            open,
            observer,
            backoff: Backoff::default(),
        };
        loop {
            tokio::select! {
                biased;
                () = anew.notified() => {}
                next = run.follow(api.clone(), strategy) => strategy = next,
            }
        }
    }

    fn watched(&self, api: Api<Tolerant<V>>, strategy: Strategy) -> Events<V> {
        watcher(api, self.watcher_config(strategy)).boxed()
    }

    fn watcher_config(&self, strategy: Strategy) -> watcher::Config {
        let seconds = u32::try_from(self.settings.watch_timeout.as_secs()).unwrap_or(u32::MAX);
        let mut config =
            watcher::Config::default().timeout(seconds).page_size(self.settings.page_size);
        config.label_selector.clone_from(&self.scope.labels);
        config.field_selector.clone_from(&self.scope.fields);
        match strategy {
            Strategy::Streamed => config.streaming_lists(),
            Strategy::Paged | Strategy::Listed => config,
        }
    }
}

/// What happens to the objects of a kind.
type Events<V> = BoxStream<'static, watcher::Result<Event<Tolerant<V>>>>;

/// Begins to list and watch. A kind is compiled with those of the two ways that it goes.
type Open<V> = fn(&Informer<V>, Api<Tolerant<V>>, Strategy) -> Events<V>;

/// A reflector at work.
struct Run<V, O> {
    reflector: Informer<V>,
    open: Open<V>,
    observer: O,
    backoff: Backoff,
    reporter: Reporter,
}

impl<V: View, O: EventHandler<V>> Run<V, O> {
    /// Follows one watcher until it must be replaced; says how the next one is to list.
    async fn follow(&mut self, api: Api<Tolerant<V>>, strategy: Strategy) -> Strategy {
        let mut events = (self.open)(&self.reflector, api, strategy);
        let mut progress = Progress::new(strategy, Instant::now());
        loop {
            match self.step(&mut events, &mut progress).await {
                None => {}
                Some(Step::Recover) => self.wait().await,
                Some(Step::Relist) => {
                    self.wait().await;
                    return strategy;
                }
                Some(Step::Page) => return Strategy::Paged,
            }
        }
    }

    /// Takes in what the watcher says next.
    async fn step(&mut self, events: &mut Events<V>, progress: &mut Progress) -> Option<Step> {
        let Settings { list_quiet, list_whole, .. } = self.reflector.settings;
        let next = match progress.patience(Instant::now(), list_quiet, list_whole) {
            Some(end) => timeout_at(end, events.next()).await.ok().flatten(),
            None => events.next().await,
        };
        match next {
            Some(Ok(event)) => self.heard(event, progress),
            Some(Err(error)) => {
                let step = progress.failed(&error, Instant::now());
                self.reporter.failed(&error, step);
                Some(step)
            }
            None => {
                self.reporter.silent();
                if progress.has_begun() {
                    self.reflector.client.disable_streamed_lists();
                }
                Some(Step::Page)
            }
        }
    }

    fn heard(&mut self, event: Event<Tolerant<V>>, progress: &mut Progress) -> Option<Step> {
        match &event {
            Event::Init => {
                if let Some(step) = progress.restarted(Instant::now()) {
                    self.reporter.silent();
                    return Some(step);
                }
            }
            Event::InitApply(object) => self.reporter.shown(object),
            Event::InitDone => progress.complete(),
            Event::Apply(object) | Event::Delete(object) => {
                progress.shown();
                self.reporter.watched();
                self.reporter.shown(object);
            }
        }
        if let Some(event) = informer_event(event) {
            self.observer.observe(event);
        }
        None
    }

    async fn wait(&mut self) {
        sleep(self.backoff.wait(Instant::now(), self.reflector.random.unit())).await;
    }
}

/// What an event of the watcher means to an observer.
fn informer_event<V: View>(event: Event<Tolerant<V>>) -> Option<InformerEvent<V>> {
    Some(match event {
        Event::Init => InformerEvent::Init,
        Event::InitDone => InformerEvent::InitDone,
        Event::InitApply(Tolerant::Read(object)) => InformerEvent::InitApply(object),
        Event::Apply(Tolerant::Read(object)) => InformerEvent::Apply(object),
        Event::Delete(Tolerant::Read(object)) => InformerEvent::Delete(object),
        Event::InitApply(Tolerant::Unreadable { metadata, .. })
        | Event::Apply(Tolerant::Unreadable { metadata, .. }) => InformerEvent::Unreadable {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
        },
        // For a deletion the names are enough.
        Event::Delete(Tolerant::Unreadable { metadata, .. }) => {
            InformerEvent::Delete(bare(&metadata)?)
        }
    })
}

/// A view with names and nothing else.
fn bare<V: View>(metadata: &ObjectMeta) -> Option<V> {
    objects::of_json(&json!({"metadata": metadata})).ok()
}
