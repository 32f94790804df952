//! A list, and the changes that come while it runs.
//!
//! Owns how a long list comes, and what is told of an object that both the list and the watch show. The
//! watch begins at the first page's version. What does not fit on that page is asked for at once, as new
//! as the page or newer, for so it comes from a kube-apiserver's cache: pages after the first may
//! cost it reading all of them from etcd. Where that fails, all pages are of the first one's version.
//! Promises that an object is never told older than it was told before, and that one which was born
//! since ([`Event::Apply`]) is told apart from one that stood and has changed, which is told as a part
//! of the list ([`Event::InitApply`]), however early. Where the watch fails while the list comes,
//! changes wait for its end. A stand-in for kube's watcher, with its events and errors; not for scopes
//! by labels or fields, where objects also come and go without being born.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{
    FutureExt as _, Stream, StreamExt as _, TryStreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use kube::{
    Api, Resource as _,
    api::{ListMeta, ListParams, VersionMatch, WatchEvent, WatchParams},
    runtime::watcher::{self, Event},
};
use tokio::time::timeout;

use super::{
    Settings,
    listing::{is_refused_as_gone, restarts},
    pages::{Page, Part, wants_json},
    tolerant::Tolerant,
};
use crate::kube_api::views::View;

/// How much longer than the server keeps a watch open it may be silent.
const MARGIN: Duration = Duration::from_secs(5);

/// Lists all objects, tells of changes meanwhile and afterwards, and begins anew when the server has
/// forgotten the version. Never ends.
pub(super) fn overlapped<V: View>(
    api: Api<Tolerant<V>>,
    settings: Settings,
) -> impl Stream<Item = watcher::Result<Event<Tolerant<V>>>> + Send {
    let rest = if settings.first_page.is_some() { Rest::AtOnce } else { Rest::InPages };
    let in_protobuf = V::from_protobuf().is_some();
    let source = Arc::new(Source { api, settings, rest, in_protobuf });
    let overlapped = Overlapped { source, stage: Stage::Outside };
    stream::unfold(overlapped, |mut overlapped| async move {
        let told = overlapped.next().await;
        Some((told, overlapped))
    })
}

/// Where the objects are.
struct Source<V: View> {
    api: Api<Tolerant<V>>,
    settings: Settings,
    rest: Rest,
    /// Whether lists are asked for in protobuf.
    in_protobuf: bool,
}

/// How what does not fit on the first page is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// As the whole list, no older than that page.
    AtOnce,
    /// In more pages of its version.
    InPages,
}

/// Where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// With the whole, no older than this version.
    NotOlderThan(String),
    /// With the page of this token.
    Page(String),
}

/// The page after the one with this head.
fn page_after(head: &ListMeta) -> Option<Place> {
    head.continue_.clone().filter(|page| !page.is_empty()).map(Place::Page)
}

/// One watch, from the request to its end.
type Watch<V> = BoxStream<'static, watcher::Result<WatchEvent<Tolerant<V>>>>;

impl<V: View> Source<V> {
    /// How many objects are asked for on the first page.
    fn first_page(&self) -> u32 {
        let Settings { first_page, page_size, .. } = self.settings;
        first_page.filter(|_| self.rest == Rest::AtOnce).unwrap_or(page_size)
    }

    /// Where a list goes on after the first page, with this head.
    fn place_after_first(&self, head: &ListMeta) -> Option<Place> {
        let page = page_after(head)?;
        // What is as new is told apart from what is newer by comparing versions.
        let version = head.resource_version.clone().filter(|version| number(version).is_some());
        Some(match (self.rest, version) {
            (Rest::AtOnce, Some(version)) => Place::NotOlderThan(version),
            _ => page,
        })
    }

    fn ask_first(&self) -> Coming {
        self.ask(&ListParams::default().limit(self.first_page()))
    }

    fn ask_on(&self, place: Place) -> Coming {
        let params = ListParams::default();
        self.ask(&match place {
            Place::NotOlderThan(version) => {
                params.at(&version).matching(VersionMatch::NotOlderThan)
            }
            Place::Page(page) => params.limit(self.settings.page_size).continue_token(&page),
        })
    }

    fn ask(&self, params: &ListParams) -> Coming {
        Coming::Asked(Page::ask(self.api.clone(), params.clone(), self.in_protobuf).boxed())
    }

    fn watch(self: &Arc<Self>, version: &str) -> Watch<V> {
        let (source, version) = (Arc::clone(self), version.to_owned());
        let seconds = u32::try_from(self.settings.watch_timeout.as_secs()).unwrap_or(u32::MAX);
        let params = WatchParams::default().timeout(seconds);
        let begun = async move {
            let events = source.api.watch(&params, &version).await;
            let events = events.map_err(watcher::Error::WatchStartFailed)?;
            Ok(events.map_err(watcher::Error::WatchFailed))
        };
        stream::once(begun).try_flatten().boxed()
    }
}

/// The list and what follows it.
struct Overlapped<V: View> {
    source: Arc<Source<V>>,
    stage: Stage<V>,
}

enum Stage<V: View> {
    /// Nothing is asked for yet.
    Outside,
    /// The list comes; changes, too, from the first page's version on.
    Listing(Box<Listing<V>>),
    /// The list is whole.
    Watching(Changes<V>),
}

impl<V: View> Overlapped<V> {
    async fn next(&mut self) -> watcher::Result<Event<Tolerant<V>>> {
        loop {
            if let Some(told) = self.step().await.transpose() {
                if let Err(error) = &told {
                    self.failed(error);
                }
                return told;
            }
        }
    }

    async fn step(&mut self) -> watcher::Result<Option<Event<Tolerant<V>>>> {
        match &mut self.stage {
            Stage::Outside => {
                let listing = Listing::new(Arc::clone(&self.source));
                self.stage = Stage::Listing(Box::new(listing));
                Ok(Some(Event::Init))
            }
            Stage::Listing(listing) => match listing.step().await? {
                Listed::More(told) => Ok(told),
                Listed::Whole(changes) => {
                    self.stage = Stage::Watching(changes);
                    Ok(Some(Event::InitDone))
                }
            },
            Stage::Watching(changes) => Ok(Some(match changes.next().await? {
                Change::Born(object) | Change::Changed(object) => Event::Apply(object),
                Change::Gone(object) => Event::Delete(object),
            })),
        }
    }

    /// A list that fails is not gone on with; a watch is, unless its version is lost.
    fn failed(&mut self, error: &watcher::Error) {
        let Source { api, settings, rest, in_protobuf } = &*self.source;
        let (mut rest, in_protobuf) = (*rest, *in_protobuf && !wants_json(error));
        if let Stage::Listing(listing) = &self.stage {
            rest = listing.rest_after_failure();
        }
        if matches!(self.stage, Stage::Listing(_)) || restarts(error) {
            self.stage = Stage::Outside;
        }
        if (rest, in_protobuf) != (self.source.rest, self.source.in_protobuf) {
            let (api, settings) = (api.clone(), *settings);
            self.source = Arc::new(Source { api, settings, rest, in_protobuf });
        }
    }
}

// === the list ===

/// A list under way.
struct Listing<V: View> {
    source: Arc<Source<V>>,
    /// The page that is told; none after the last.
    page: Option<Coming>,
    /// Whether that is the first one.
    is_first: bool,
    /// How many of its objects have come.
    seen: u32,
    /// The page after it.
    next: Option<Next>,
    /// None before the first page's version, which they begin at.
    changes: Option<Changes<V>>,
    told: Told,
}

/// A page that is not told yet.
enum Next {
    /// It goes on there.
    At(Place),
    /// It is asked for, so that the server need not wait for us to have read the one before.
    Coming(Coming),
}

impl Next {
    /// Waits until the page begins, where it is asked for. Nothing of it is read. Nothing is lost
    /// when this is dropped.
    async fn begins(next: &mut Option<Self>) -> kube::Result<()> {
        match next {
            Some(Self::Coming(coming @ Coming::Asked(_))) => coming.comes().await,
            _ => std::future::pending().await,
        }
    }
}

/// A page on its way.
enum Coming {
    Asked(BoxFuture<'static, kube::Result<Page>>),
    Begun(Page),
}

impl Coming {
    /// What of it has come already.
    fn at_hand<V: View>(&mut self) -> kube::Result<Option<Part<V>>> {
        match self {
            Self::Asked(_) => Ok(None),
            Self::Begun(page) => page.at_hand(),
        }
    }

    /// Waits for more of it. Nothing is lost when this is dropped.
    async fn comes(&mut self) -> kube::Result<()> {
        match self {
            Self::Asked(asked) => *self = Self::Begun(asked.await?),
            Self::Begun(page) => page.comes().await?,
        }
        Ok(())
    }
}

/// What came of a step of a list.
enum Listed<V: View> {
    /// It goes on; something may be told.
    More(Option<Event<Tolerant<V>>>),
    /// Everything is told; this is what follows.
    Whole(Changes<V>),
}

/// What comes next.
enum Came<V: View> {
    Change(watcher::Result<Change<V>>),
    MoreOfTheList(kube::Result<()>),
}

impl<V: View> Listing<V> {
    fn new(source: Arc<Source<V>>) -> Self {
        let page = Some(source.ask_first());
        Self {
            source,
            page,
            is_first: true,
            seen: 0,
            next: None,
            changes: None,
            told: Told::default(),
        }
    }

    async fn step(&mut self) -> watcher::Result<Listed<V>> {
        let Some(page) = &mut self.page else {
            let changes = self.changes.take().ok_or(watcher::Error::NoResourceVersion)?;
            return Ok(Listed::Whole(changes.go_on()));
        };
        if let Some(part) = page.at_hand().map_err(watcher::Error::InitialListFailed)? {
            return Ok(Listed::More(self.take_in(part)?));
        }
        // A page that comes fast must not keep back what is new.
        let came = tokio::select! {
            biased;
            change = Changes::next_of(&mut self.changes) => Came::Change(change),
            begun = Next::begins(&mut self.next) => Came::MoreOfTheList(begun),
            more = page.comes() => Came::MoreOfTheList(more),
        };
        match came {
            Came::Change(Ok(change)) => return Ok(Listed::More(Some(self.told.change(change)))),
            Came::Change(Err(error)) => self.interrupted(error)?,
            Came::MoreOfTheList(more) => more.map_err(watcher::Error::InitialListFailed)?,
        }
        Ok(Listed::More(None))
    }

    /// Takes in a part of a page.
    fn take_in(&mut self, part: Part<V>) -> watcher::Result<Option<Event<Tolerant<V>>>> {
        match part {
            Part::Object(object) => {
                self.seen += 1;
                self.ask_ahead();
                let comes_again = self.is_first && self.source.rest == Rest::AtOnce;
                return Ok(self.told.listed(object, comes_again));
            }
            Part::Head(head) => self.page_begins(head)?,
            Part::End => {
                let next = self.next.take().map(|next| self.asked(next));
                (self.page, self.seen, self.is_first) = (next, 0, false);
            }
        }
        Ok(None)
    }

    fn page_begins(&mut self, head: ListMeta) -> watcher::Result<()> {
        let next =
            if self.is_first { self.source.place_after_first(&head) } else { page_after(&head) };
        self.next = next.map(Next::At);
        let version = head.resource_version.filter(|version| !version.is_empty());
        if let Some(changes) = &mut self.changes {
            changes.listed = version.as_deref().and_then(number);
            return Ok(());
        }
        let version = version.ok_or(watcher::Error::NoResourceVersion)?;
        self.changes = Some(Changes::new(Arc::clone(&self.source), version));
        Ok(())
    }

    fn asked(&self, next: Next) -> Coming {
        match next {
            Next::At(place) => self.source.ask_on(place),
            Next::Coming(page) => page,
        }
    }

    /// Asks for the next page half-way through this one: then the server works on it while we read
    /// the rest. Not earlier, for its time counts from then on.
    fn ask_ahead(&mut self) {
        let Settings { page_size, .. } = self.source.settings;
        let size = if self.is_first { self.source.first_page() } else { page_size };
        if self.seen >= size / 2 {
            self.next = self.next.take().map(|next| Next::Coming(self.asked(next)));
        }
    }

    /// How the rest is asked for when this list has failed: in the other way, where the rest was under way,
    /// be it that the first page was, too.
    fn rest_after_failure(&self) -> Rest {
        let asked = !self.is_first || matches!(self.next, Some(Next::Coming(_)));
        match self.source.rest {
            Rest::AtOnce if asked => Rest::InPages,
            Rest::InPages if asked && self.source.settings.first_page.is_some() => Rest::AtOnce,
            same => same,
        }
    }

    /// The watch failed: the list goes on alone, unless what it changes into is lost.
    fn interrupted(&mut self, error: watcher::Error) -> watcher::Result<()> {
        if restarts(&error) || is_refused_as_gone(&error) {
            return Err(error);
        }
        if let Some(changes) = &mut self.changes {
            changes.link = Link::Resting;
        }
        Ok(())
    }
}

/// What was told while the list runs and comes again, by UID: what the watch has shown, and the first
/// page where the whole list follows.
#[derive(Default)]
struct Told(BTreeMap<String, Latest>);

/// An object as it was told last.
#[derive(Clone, Copy)]
struct Latest {
    origin: Origin,
    /// Where that is a number.
    version: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Not in the list's first version: it came after.
    Born,
    /// In it, maybe in an older state.
    Stood,
}

impl Origin {
    fn event<V>(self, object: Tolerant<V>) -> Event<Tolerant<V>> {
        match self {
            Self::Born => Event::Apply(object),
            Self::Stood => Event::InitApply(object),
        }
    }
}

impl Told {
    /// What is to be told of an object in the list: nothing, where a state as new was told.
    fn listed<V: View>(
        &mut self,
        object: Tolerant<V>,
        comes_again: bool,
    ) -> Option<Event<Tolerant<V>>> {
        let version = version_of(&object);
        let known = object.meta().uid.as_ref().and_then(|uid| self.0.get_mut(uid));
        if let Some(known) = known {
            let is_newer = version > known.version;
            known.version = version.max(known.version);
            return is_newer.then(|| known.origin.event(object));
        }
        if comes_again {
            self.note(&object, Origin::Stood);
        }
        Some(Event::InitApply(object))
    }

    /// What is to be told of a change.
    fn change<V: View>(&mut self, change: Change<V>) -> Event<Tolerant<V>> {
        match change {
            Change::Born(object) => {
                self.note(&object, Origin::Born);
                Event::Apply(object)
            }
            Change::Changed(object) => self.note(&object, Origin::Stood).event(object),
            Change::Gone(object) => {
                self.note(&object, Origin::Stood);
                Event::Delete(object)
            }
        }
    }

    /// Notes the object, and gives the origin that was noted first.
    fn note<V: View>(&mut self, object: &Tolerant<V>, origin: Origin) -> Origin {
        let Some(uid) = &object.meta().uid else { return origin };
        let version = version_of(object);
        let known = self.0.entry(uid.clone()).or_insert(Latest { origin, version });
        known.version = version.max(known.version);
        known.origin
    }
}

/// A version that can be compared: a number, among objects of one kind (Kubernetes 1.35 says so).
fn number(version: &str) -> Option<u64> {
    version.parse().ok()
}

fn version_of<V: View>(object: &Tolerant<V>) -> Option<u64> {
    number(object.meta().resource_version.as_ref()?)
}

// === the watch ===

/// A change to an object.
enum Change<V> {
    Born(Tolerant<V>),
    Changed(Tolerant<V>),
    Gone(Tolerant<V>),
}

/// All changes since a version, one watch after the other.
struct Changes<V: View> {
    source: Arc<Source<V>>,
    /// What was told is of this version and older.
    version: String,
    /// The list shows, or has shown, everything as it was in this version.
    listed: Option<u64>,
    link: Link<V>,
}

enum Link<V: View> {
    /// There is no watch; the next look begins one.
    Down,
    /// There is a watch.
    Up(Watch<V>),
    /// There is none, and none is begun.
    Resting,
}

impl<V: View> Changes<V> {
    fn new(source: Arc<Source<V>>, version: String) -> Self {
        Self { source, version, listed: None, link: Link::Down }
    }

    /// Ends a rest.
    fn go_on(self) -> Self {
        let link = if let Link::Resting = self.link { Link::Down } else { self.link };
        Self { link, ..self }
    }

    /// The next change, where there is something to wait for. Nothing is lost when it is dropped.
    async fn next_of(changes: &mut Option<Self>) -> watcher::Result<Change<V>> {
        match changes {
            Some(changes) => changes.next().await,
            None => std::future::pending().await,
        }
    }

    /// The next change. Nothing is lost when it is dropped.
    async fn next(&mut self) -> watcher::Result<Change<V>> {
        let dead = self.source.settings.watch_timeout + MARGIN;
        loop {
            match &mut self.link {
                Link::Resting => std::future::pending().await,
                Link::Down => self.link = Link::Up(self.source.watch(&self.version)),
                Link::Up(watch) => match timeout(dead, watch.next()).await {
                    Ok(Some(event)) => {
                        if let Some(change) = self.heard(event).transpose() {
                            return change;
                        }
                    }
                    // Ended, or dead.
                    Ok(None) | Err(_) => self.link = Link::Down,
                },
            }
        }
    }

    fn heard(
        &mut self,
        event: watcher::Result<WatchEvent<Tolerant<V>>>,
    ) -> watcher::Result<Option<Change<V>>> {
        let change = match event {
            Ok(WatchEvent::Added(object)) => Change::Born(object),
            Ok(WatchEvent::Modified(object)) => Change::Changed(object),
            Ok(WatchEvent::Deleted(object)) => Change::Gone(object),
            Ok(WatchEvent::Bookmark(bookmark)) => {
                self.version = bookmark.metadata.resource_version;
                return Ok(None);
            }
            Ok(WatchEvent::Error(status)) => {
                self.link = Link::Down;
                return Err(watcher::Error::WatchError(status.boxed()));
            }
            Err(error) => {
                self.link = Link::Down;
                return Err(error);
            }
        };
        let version = change.object().meta().resource_version.as_ref();
        let version = version.filter(|version| !version.is_empty());
        version.ok_or(watcher::Error::NoResourceVersion)?.clone_into(&mut self.version);
        Ok(Some(change).filter(|change| !self.is_listed(change)))
    }

    /// Whether the list shows what came of this. What is gone it does not show, which may have been told
    /// before.
    fn is_listed(&self, change: &Change<V>) -> bool {
        match change {
            Change::Born(object) | Change::Changed(object) => {
                version_of(object).is_some_and(|version| Some(version) <= self.listed)
            }
            Change::Gone(_) => false,
        }
    }
}

impl<V> Change<V> {
    fn object(&self) -> &Tolerant<V> {
        match self {
            Self::Born(object) | Self::Changed(object) | Self::Gone(object) => object,
        }
    }
}
