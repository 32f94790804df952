//! Watches: changes as a stream.
//!
//! Owns what a watch starts with, what of the history it tells, its bookmarks and its end.
//! Promises that a watcher sees each change of its selection once and in order, and that it reads
//! from the store's history at its own pace: a slow one costs no buffer. No task runs for it; it
//! lives in the answer's body.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};
use tower::BoxError;

use super::{
    faults::StreamFault,
    object::Object,
    parameters::{ListOptions, Since},
    representation::{Writer, event},
    selectors::Selection,
    status::Status,
    store::{Change, Compacted},
    verbs::{State, Target},
};

/// How often a bookmark comes.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long a watch lasts whose client names no time.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// How many changes are read from the history at once.
const BATCH: usize = 64;

/// A hold on a running watch from outside.
#[derive(Debug)]
struct Handle {
    resource: String,
    cut: AtomicBool,
    notify: Notify,
}

/// All running watches.
#[derive(Debug, Default)]
pub struct Watches(Mutex<Vec<std::sync::Weak<Handle>>>);

impl Watches {
    fn open(&self, resource: &str) -> Arc<Handle> {
        let handle = Arc::new(Handle { resource: resource.to_owned(), cut: AtomicBool::new(false), notify: Notify::new() });
        let mut watches = self.0.lock();
        watches.retain(|watch| watch.strong_count() > 0);
        watches.push(Arc::downgrade(&handle));
        handle
    }

    /// How many watches of a resource run.
    pub fn count(&self, resource: &str) -> usize {
        self.0.lock().iter().filter_map(std::sync::Weak::upgrade).filter(|watch| watch.resource == resource).count()
    }

    /// Cuts the connections of all watches, or of those of one resource.
    pub fn cut(&self, resource: Option<&str>) {
        for watch in self.0.lock().iter().filter_map(std::sync::Weak::upgrade) {
            if resource.is_none_or(|resource| resource == watch.resource) {
                watch.cut.store(true, Ordering::Relaxed);
                watch.notify.notify_one();
            }
        }
    }
}

/// What a watch is doing.
#[derive(Debug)]
enum Phase {
    /// Telling what there is: synthetic ADDED events.
    Initial(VecDeque<Arc<Object>>),
    /// Telling what changes.
    Changes,
    /// Over.
    Ended,
}

/// A running watch.
pub(super) struct Watcher {
    state: Arc<Mutex<State>>,
    target: Target,
    selection: Selection,
    writer: Writer,
    phase: Phase,
    /// The revision up to which all is told.
    seen: u64,
    pending: VecDeque<Bytes>,
    latest: watch::Receiver<u64>,
    bookmarks: Option<Instant>,
    end: Instant,
    /// A streaming list tells where its initial events end.
    streaming: bool,
    fault: Option<StreamFault>,
    told: usize,
    handle: Arc<Handle>,
}

/// What a watcher needs besides its options.
pub(super) struct Setting<'a> {
    pub(super) state: &'a Arc<Mutex<State>>,
    pub(super) watches: &'a Watches,
    pub(super) target: Target,
    pub(super) writer: Writer,
    pub(super) fault: Option<StreamFault>,
}

impl Watcher {
    /// Starts a watch.
    pub(super) fn start(setting: Setting<'_>, options: &ListOptions) -> Self {
        let Setting { state, watches, target, writer, fault } = setting;
        let now = Instant::now();
        let mut locked = state.lock();
        let latest = locked.store.subscribe(&target.kind.group_resource());
        let (initial, seen) = beginning(&locked, &target, options);
        drop(locked);
        Self {
            state: Arc::clone(state),
            selection: options.selection.clone(),
            writer,
            phase: initial.map_or(Phase::Changes, Phase::Initial),
            seen,
            pending: VecDeque::new(),
            latest,
            bookmarks: options.bookmarks.then(|| now + BOOKMARK_EVERY),
            end: now + options.timeout.unwrap_or(DEFAULT_TIMEOUT),
            streaming: options.initial_events == Some(true),
            fault,
            told: 0,
            handle: watches.open(&target.kind.plural),
            target,
        }
    }

    /// The next piece of the stream; none at its end.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        loop {
            if self.handle.cut.load(Ordering::Relaxed) {
                return self.cut();
            }
            if let Some(fault) = self.fault.filter(|fault| fault.after() <= self.told)
                && let Some(ended) = self.suffer(fault).await
            {
                return ended;
            }
            if let Some(line) = self.pending.pop_front() {
                return Some(Ok(line));
            }
            match &mut self.phase {
                Phase::Ended => return None,
                Phase::Initial(objects) => match objects.pop_front() {
                    Some(object) => return Some(Ok(self.tell("ADDED", &object))),
                    None => self.end_initial(),
                },
                Phase::Changes => self.read_changes(),
            }
            if self.pending.is_empty() && matches!(self.phase, Phase::Changes) {
                self.wait().await;
            }
        }
    }

    fn tell(&mut self, name: &str, object: &Arc<Object>) -> Bytes {
        self.told += 1;
        self.writer.event(name, object)
    }

    fn end_initial(&mut self) {
        if self.streaming {
            self.pending.push_back(self.writer.bookmark(self.seen, true));
        }
        self.phase = Phase::Changes;
    }

    /// Reads what the history has to tell next.
    fn read_changes(&mut self) {
        self.latest.borrow_and_update();
        let changes = self.state.lock().store.changes(&self.target.kind.group_resource(), self.seen, BATCH);
        let changes = match changes {
            Ok(changes) => changes,
            Err(Compacted { oldest }) => return self.expire(oldest),
        };
        for change in changes {
            // A fault strikes after an exact number of events: what is beyond is not read yet.
            if self.fault.is_some_and(|fault| fault.after() <= self.told) {
                return;
            }
            self.seen = change.revision();
            if let Some((name, object)) = self.seen_as(&change) {
                let line = self.tell(name, &object);
                self.pending.push_back(line);
            }
        }
    }

    /// A change as this watch's selection sees it.
    fn seen_as(&self, change: &Change) -> Option<(&'static str, Arc<Object>)> {
        let namespace = &self.target.key.namespace;
        if !namespace.is_empty() && change.object.meta("namespace") != namespace {
            return None;
        }
        let selected = |object: &Object| self.selection.matches(object.value());
        let before = change.before.as_deref().is_some_and(selected);
        let after = !change.gone && selected(&change.object);
        let name = match (before, after) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        // What leaves the selection is told as it last was in it, at the revision it left.
        match (&change.before, after) {
            (Some(before), false) => Some((name, Arc::new(Object::new(before.value().clone(), change.revision())))),
            _ => Some((name, Arc::clone(&change.object))),
        }
    }

    fn expire(&mut self, oldest: u64) {
        let status = Status::expired(format!("too old resource version: {} ({oldest})", self.seen));
        self.pending.push_back(event("ERROR", status.body.to_string().as_bytes()));
        self.phase = Phase::Ended;
    }

    /// The connection breaks; nothing comes after.
    fn cut(&mut self) -> Option<Result<Bytes, BoxError>> {
        self.phase = Phase::Ended;
        self.pending.clear();
        self.fault = None;
        self.handle.cut.store(false, Ordering::Relaxed);
        Some(Err("the connection was cut".into()))
    }

    /// A fault's time has come; gives how the stream goes on, or nothing when it does as usual.
    async fn suffer(&mut self, fault: StreamFault) -> Option<Option<Result<Bytes, BoxError>>> {
        if !self.pending.is_empty() {
            return None;
        }
        match fault {
            StreamFault::End { .. } => {
                self.phase = Phase::Ended;
                Some(None)
            }
            StreamFault::Cut { .. } => Some(self.cut()),
            StreamFault::Stall { .. } => {
                self.handle.notify.notified().await;
                Some(self.cut())
            }
            StreamFault::Swallow { .. } => {
                self.seen = self.state.lock().store.revision();
                self.latest.borrow_and_update();
                None
            }
            StreamFault::Expire { .. } => {
                self.fault = None;
                self.expire(self.seen);
                None
            }
        }
    }

    /// Waits for a change, a bookmark's time or the end.
    async fn wait(&mut self) {
        let bookmark = self.bookmarks.unwrap_or(self.end).min(self.end);
        tokio::select! {
            biased;
            () = self.handle.notify.notified() => {}
            _ = self.latest.changed() => {}
            () = sleep_until(bookmark) => self.mark_time(),
        }
    }

    fn mark_time(&mut self) {
        if self.bookmarks.is_some() {
            self.seen = self.progress();
            self.pending.push_back(self.writer.bookmark(self.seen, false));
            self.bookmarks = Some(Instant::now() + BOOKMARK_EVERY);
        }
        if Instant::now() >= self.end {
            self.phase = Phase::Ended;
        }
    }

    /// The newest revision, when nothing of this kind is left untold; else what is told.
    fn progress(&self) -> u64 {
        let state = self.state.lock();
        let untold = state.store.changes(&self.target.kind.group_resource(), self.seen, 1);
        match untold {
            Ok(changes) if changes.is_empty() => state.store.revision(),
            _ => self.seen,
        }
    }
}

/// What a watch starts with, if it starts with what there is, and the revision it goes on from.
fn beginning(state: &State, target: &Target, options: &ListOptions) -> (Option<VecDeque<Arc<Object>>>, u64) {
    let resume = match (options.initial_events, options.since) {
        (Some(true), _) => None,
        (Some(false), Since::Latest | Since::Any) => Some(state.store.revision()),
        (_, Since::NotOlderThan(revision) | Since::Exact(revision)) => Some(revision),
        (None, Since::Latest | Since::Any) => None,
    };
    if let Some(revision) = resume {
        return (None, revision);
    }
    let namespace = Some(target.key.namespace.as_str()).filter(|ns| !ns.is_empty());
    let objects = state.store.range(&target.kind.group_resource(), namespace, None);
    let selected = objects.filter(|(_, object)| options.selection.matches(object.value()));
    (Some(selected.map(|(_, object)| Arc::clone(object)).collect()), state.store.revision())
}
