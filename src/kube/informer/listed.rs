//! A list that is read while it comes, and the watch that follows it.
//!
//! Owns how a long list is asked for. Of the first page only the version counts where more follows:
//! then the whole list is asked for at once, as new as that page or newer, for so it comes from a
//! kube-apiserver's cache, while pages after the first may cost it reading all of them from etcd.
//! Where that fails, all pages are of the first one's version. The watch begins at the list's
//! version, once the list is whole. Promises that no list is older than its request. A stand-in for
//! kube's watcher, with its events and errors; not for scopes by labels or fields.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures::{Stream, StreamExt as _, TryStreamExt as _, stream, stream::BoxStream};
use kube::{
    Api, Resource as _,
    api::{ListMeta, ListParams, VersionMatch, WatchEvent, WatchParams},
    runtime::watcher::{self, Event},
};
use tokio::time::timeout;

use super::{
    Settings,
    listing::restarts,
    pages::{Page, Part, wants_json},
    tolerant::Tolerant,
};
use crate::kube::objects::View;

/// How much longer than the server keeps a watch open it may be silent.
const MARGIN: Duration = Duration::from_secs(5);

/// What is shown of one kind.
type Shown<V> = watcher::Result<Event<Tolerant<V>>>;

/// One watch, from the request to its end.
type Watch<V> = BoxStream<'static, watcher::Result<WatchEvent<Tolerant<V>>>>;

/// Lists all objects, then shows changes, and begins anew when the server has forgotten the
/// version. Never ends.
pub(super) fn list_and_watch<V: View>(
    api: Api<Tolerant<V>>,
    settings: Settings,
) -> impl Stream<Item = Shown<V>> + Send {
    stream::unfold(Listed::new(api, settings), |mut listed| async move {
        let shown = listed.next().await;
        Some((shown, listed))
    })
}

/// Where the objects are, and how they are asked for.
#[derive(Clone)]
struct Source<V: View> {
    api: Api<Tolerant<V>>,
    settings: Settings,
    /// Whether what does not fit on the first page is asked for at once, and not in pages.
    at_once: bool,
    /// Whether lists are asked for in protobuf.
    in_protobuf: bool,
}

impl<V: View> Source<V> {
    fn first_page(&self) -> ListParams {
        let Settings { first_page, page_size, .. } = self.settings;
        ListParams::default().limit(first_page.filter(|_| self.at_once).unwrap_or(page_size))
    }

    /// How the list goes on after a page with this head; none after the last. Versions that are no
    /// numbers are of a server that may not know what "as new or newer" means.
    fn after(&self, head: &ListMeta, is_first: bool) -> Option<Rest> {
        let page = head.continue_.clone().filter(|page| !page.is_empty())?;
        let version = head.resource_version.clone().filter(|it| it.parse::<u64>().is_ok());
        Some(match version.filter(|_| is_first && self.at_once) {
            Some(version) => {
                Rest::Whole(ListParams::default().at(&version).matching(VersionMatch::NotOlderThan))
            }
            None => Rest::Page(
                ListParams::default().limit(self.settings.page_size).continue_token(&page),
            ),
        })
    }

    async fn ask(&self, params: ListParams) -> watcher::Result<Page> {
        let asked = Page::ask(self.api.clone(), params, self.in_protobuf);
        asked.await.map_err(watcher::Error::InitialListFailed)
    }

    fn watch(&self, version: &str) -> Watch<V> {
        let (api, version) = (self.api.clone(), version.to_owned());
        let seconds = u32::try_from(self.settings.watch_timeout.as_secs()).unwrap_or(u32::MAX);
        let params = WatchParams::default().timeout(seconds);
        let begun = async move {
            let events = api.watch(&params, &version).await;
            let events = events.map_err(watcher::Error::WatchStartFailed)?;
            Ok(events.map_err(watcher::Error::WatchFailed))
        };
        stream::once(begun).try_flatten().boxed()
    }
}

/// How a list goes on.
enum Rest {
    /// Everything is asked for anew: what came so far does not count.
    Whole(ListParams),
    /// With the next page.
    Page(ListParams),
}

/// The list and what follows it.
pub(super) struct Listed<V: View> {
    source: Arc<Source<V>>,
    stage: Stage<V>,
}

enum Stage<V: View> {
    /// Nothing is asked for yet.
    Outside,
    /// The list comes.
    Listing(Box<Listing<V>>),
    /// The list is whole.
    Watching(Changes<V>),
}

impl<V: View> Listed<V> {
    /// Nothing is asked for yet.
    pub(super) fn new(api: Api<Tolerant<V>>, settings: Settings) -> Self {
        let at_once = settings.first_page.is_some();
        let source = Source { api, settings, at_once, in_protobuf: V::from_protobuf().is_some() };
        Self { source: Arc::new(source), stage: Stage::Outside }
    }

    /// The version of the list, once it is whole.
    pub(super) fn version(&self) -> Option<&str> {
        match &self.stage {
            Stage::Watching(changes) => Some(&changes.version),
            Stage::Outside | Stage::Listing(_) => None,
        }
    }

    /// What is shown next. After an error everything is listed anew.
    pub(super) async fn next(&mut self) -> Shown<V> {
        let shown = self.step().await;
        if let Err(error) = &shown {
            self.failed(error);
        }
        shown
    }

    async fn step(&mut self) -> Shown<V> {
        match &mut self.stage {
            Stage::Outside => {
                self.stage = Stage::Listing(Box::new(Listing::new(Arc::clone(&self.source))));
                Ok(Event::Init)
            }
            Stage::Listing(listing) => {
                if let Some(object) = listing.next().await? {
                    return Ok(Event::InitApply(object));
                }
                let version = listing.version.take().ok_or(watcher::Error::NoResourceVersion)?;
                self.stage = Stage::Watching(Changes::new(Arc::clone(&self.source), version));
                Ok(Event::InitDone)
            }
            Stage::Watching(changes) => changes.next().await,
        }
    }

    /// A list that fails is not gone on with; a watch is, unless its version is lost. What failed in
    /// one way is asked for in the other.
    fn failed(&mut self, error: &watcher::Error) {
        let mut source = Source::clone(&self.source);
        if let Stage::Listing(listing) = &self.stage
            && !listing.is_first
            && source.settings.first_page.is_some()
        {
            source.at_once = !source.at_once;
        }
        source.in_protobuf &= !wants_json(error);
        if matches!(self.stage, Stage::Listing(_)) || restarts(error) {
            self.stage = Stage::Outside;
        }
        self.source = Arc::new(source);
    }
}

// === the list ===

/// A list under way.
struct Listing<V: View> {
    source: Arc<Source<V>>,
    params: ListParams,
    page: Option<Page>,
    is_first: bool,
    /// What follows the page, once its head came.
    rest: Option<Rest>,
    /// Whether its objects are shown: not before the head came, nor where the whole list follows.
    counts: bool,
    held: VecDeque<Tolerant<V>>,
    /// Of the list, once its head came.
    version: Option<String>,
}

impl<V: View> Listing<V> {
    fn new(source: Arc<Source<V>>) -> Self {
        let params = source.first_page();
        Self {
            source,
            params,
            page: None,
            is_first: true,
            rest: None,
            counts: false,
            held: VecDeque::new(),
            version: None,
        }
    }

    /// The next object of the list; none after the last. Nothing is lost when this is dropped.
    async fn next(&mut self) -> watcher::Result<Option<Tolerant<V>>> {
        loop {
            if self.counts
                && let Some(object) = self.held.pop_front()
            {
                return Ok(Some(object));
            }
            let Some(page) = &mut self.page else {
                self.page = Some(self.source.ask(self.params.clone()).await?);
                continue;
            };
            match page.at_hand().map_err(watcher::Error::InitialListFailed)? {
                None => page.comes().await.map_err(watcher::Error::InitialListFailed)?,
                Some(Part::Object(object)) => self.take_in(object),
                Some(Part::Head(head)) => self.page_begins(head),
                Some(Part::End) if self.goes_on() => {}
                Some(Part::End) => return Ok(None),
            }
        }
    }

    fn take_in(&mut self, object: Tolerant<V>) {
        if !matches!(self.rest, Some(Rest::Whole(_))) {
            self.held.push_back(object);
        }
    }

    fn page_begins(&mut self, head: ListMeta) {
        self.rest = self.source.after(&head, self.is_first);
        self.counts = !matches!(self.rest, Some(Rest::Whole(_)));
        let version = head.resource_version.filter(|version| !version.is_empty());
        // All pages are of the first one's version; a whole list has its own.
        let is_whole_list = self.params.limit.is_none();
        if self.version.is_none() || is_whole_list {
            self.version = version;
        }
    }

    /// The page has ended: whether the list goes on after it.
    fn goes_on(&mut self) -> bool {
        let Some(rest) = self.rest.take() else { return false };
        if let Rest::Whole(_) = rest {
            self.held.clear();
        }
        let (Rest::Whole(params) | Rest::Page(params)) = rest;
        (self.params, self.page, self.is_first, self.counts) = (params, None, false, false);
        true
    }
}

// === the watch ===

/// All changes since a version, one watch after the other.
struct Changes<V: View> {
    source: Arc<Source<V>>,
    /// What was shown is of this version and older.
    version: String,
    watch: Option<Watch<V>>,
}

impl<V: View> Changes<V> {
    fn new(source: Arc<Source<V>>, version: String) -> Self {
        Self { source, version, watch: None }
    }

    /// The next change. Nothing is lost when it is dropped.
    async fn next(&mut self) -> Shown<V> {
        let dead = self.source.settings.watch_timeout + MARGIN;
        loop {
            let watch = self.watch.get_or_insert_with(|| self.source.watch(&self.version));
            match timeout(dead, watch.next()).await {
                Ok(Some(event)) => {
                    if let Some(shown) = self.heard(event).transpose() {
                        return shown;
                    }
                }
                // Ended, or dead.
                Ok(None) | Err(_) => self.watch = None,
            }
        }
    }

    fn heard(
        &mut self,
        event: watcher::Result<WatchEvent<Tolerant<V>>>,
    ) -> watcher::Result<Option<Event<Tolerant<V>>>> {
        let shown = match event {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => Event::Apply(object),
            Ok(WatchEvent::Deleted(object)) => Event::Delete(object),
            Ok(WatchEvent::Bookmark(bookmark)) => {
                self.version = bookmark.metadata.resource_version;
                return Ok(None);
            }
            Ok(WatchEvent::Error(status)) => {
                self.watch = None;
                return Err(watcher::Error::WatchError(status.boxed()));
            }
            Err(error) => {
                self.watch = None;
                return Err(error);
            }
        };
        if let Event::Apply(object) | Event::Delete(object) = &shown {
            let version = object.meta().resource_version.as_ref();
            let version = version.filter(|version| !version.is_empty());
            version.ok_or(watcher::Error::NoResourceVersion)?.clone_into(&mut self.version);
        }
        Ok(Some(shown))
    }
}
