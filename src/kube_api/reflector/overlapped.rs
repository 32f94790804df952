//! A list in pages, and the changes that come while it runs.
//!
//! Owns what is told of an object that both a page and the watch show: all pages are of one version,
//! that of the first, and the watch begins at it. Promises that an object is never told older than
//! it was told before, and that one which was born since ([`Event::Apply`]) is told apart from one
//! that stood and has changed, which is told as a part of the list ([`Event::InitApply`]), however
//! early. Where the watch fails while pages come, changes wait for the last of them. A stand-in for
//! kube's watcher, with its events and errors; not for scopes by labels or fields, where objects
//! also come and go without being born.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{
    FutureExt as _, Stream, StreamExt as _, TryStreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use kube::{
    Api, Resource as _,
    api::{ListParams, WatchEvent, WatchParams},
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
    let source = Arc::new(Source { api, settings, in_protobuf: V::from_protobuf().is_some() });
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
    /// Whether lists are asked for in protobuf.
    in_protobuf: bool,
}

/// One watch, from the request to its end.
type Watch<V> = BoxStream<'static, watcher::Result<WatchEvent<Tolerant<V>>>>;

impl<V: View> Source<V> {
    fn ask(&self, next: Option<String>) -> Coming {
        let mut page = ListParams::default().limit(self.settings.page_size);
        page.continue_token = next;
        Coming::Asked(Page::ask(self.api.clone(), page, self.in_protobuf).boxed())
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
    /// Pages come; changes, too, from the first page's version on.
    Listing(Box<Listing<V>>),
    /// All pages have come.
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
        if matches!(self.stage, Stage::Listing(_)) || restarts(error) {
            self.stage = Stage::Outside;
        }
        if wants_json(error) {
            let Source { api, settings, .. } = &*self.source;
            let (api, settings) = (api.clone(), *settings);
            self.source = Arc::new(Source { api, settings, in_protobuf: false });
        }
    }
}

// === the list ===

/// A list under way.
struct Listing<V: View> {
    source: Arc<Source<V>>,
    /// The page that is told; none after the last.
    page: Option<Coming>,
    /// How many of its objects have come.
    seen: u32,
    /// The page after it.
    next: Option<Next>,
    /// None before the first page's version, which they begin at.
    changes: Option<Changes<V>>,
    touched: Touched,
}

/// A page that is not told yet.
enum Next {
    /// It goes on there.
    At(String),
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
        let page = Some(source.ask(None));
        Self { source, page, seen: 0, next: None, changes: None, touched: Touched::default() }
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
            Came::Change(Ok(change)) => return Ok(Listed::More(Some(self.touched.tell(change)))),
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
                let told = !self.touched.knows(&object);
                return Ok(told.then_some(Event::InitApply(object)));
            }
            Part::Head(head) => {
                let version = head.resource_version.filter(|version| !version.is_empty());
                if self.changes.is_none() {
                    let version = version.ok_or(watcher::Error::NoResourceVersion)?;
                    self.changes = Some(Changes::new(Arc::clone(&self.source), version));
                }
                self.next = head.continue_.filter(|next| !next.is_empty()).map(Next::At);
            }
            Part::End => {
                self.seen = 0;
                self.page = self.next.take().map(|next| match next {
                    Next::At(place) => self.source.ask(Some(place)),
                    Next::Coming(page) => page,
                });
            }
        }
        Ok(None)
    }

    /// Asks for the next page half-way through this one: then the server works on it while we read
    /// the rest. Not earlier, for its time counts from then on.
    fn ask_ahead(&mut self) {
        if self.seen < self.source.settings.page_size / 2 {
            return;
        }
        self.next = self.next.take().map(|next| match next {
            Next::At(place) => Next::Coming(self.source.ask(Some(place))),
            asked @ Next::Coming(_) => asked,
        });
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

/// The objects that a watch has shown while the list runs, by UID.
#[derive(Default)]
struct Touched(BTreeMap<String, Touch>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Touch {
    /// Not in the list: it came after.
    Born,
    /// In the list, in an older state, or gone by now.
    Stood,
}

impl Touched {
    /// Whether a newer state of the object than its page's was told already.
    fn knows<V: View>(&self, object: &Tolerant<V>) -> bool {
        object.meta().uid.as_ref().is_some_and(|uid| self.0.contains_key(uid))
    }

    fn tell<V: View>(&mut self, change: Change<V>) -> Event<Tolerant<V>> {
        match change {
            Change::Born(object) => {
                self.touch(&object, Touch::Born);
                Event::Apply(object)
            }
            Change::Changed(object) => match self.touch(&object, Touch::Stood) {
                Touch::Born => Event::Apply(object),
                Touch::Stood => Event::InitApply(object),
            },
            Change::Gone(object) => {
                self.touch(&object, Touch::Stood);
                Event::Delete(object)
            }
        }
    }

    /// Notes the object, and gives what was noted first.
    fn touch<V: View>(&mut self, object: &Tolerant<V>, touch: Touch) -> Touch {
        let Some(uid) = &object.meta().uid else { return touch };
        *self.0.entry(uid.clone()).or_insert(touch)
    }
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
        Self { source, version, link: Link::Down }
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
        Ok(Some(change))
    }
}

impl<V> Change<V> {
    fn object(&self) -> &Tolerant<V> {
        match self {
            Self::Born(object) | Self::Changed(object) | Self::Gone(object) => object,
        }
    }
}
