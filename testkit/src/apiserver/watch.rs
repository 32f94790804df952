//! Watches: changes as a stream. A watcher sees each change of its selection once and in order, and reads from the
//! store's history at its own pace: a slow one costs no buffer. No task runs for it; it lives in the answer's body.

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
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};
use tower::BoxError;

use super::{
    faults::StreamFault,
    latest::Follower,
    object::Object,
    parameters::{ListOptions, Since},
    representation::Writer,
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
        let handle = Arc::new(Handle {
            resource: resource.to_owned(),
            cut: AtomicBool::new(false),
            notify: Notify::new(),
        });
        let mut watches = self.0.lock();
        watches.retain(|watch| watch.strong_count() > 0);
        watches.push(Arc::downgrade(&handle));
        handle
    }

    /// How many watches of a resource run.
    pub fn count(&self, resource: &str) -> usize {
        self.0
            .lock()
            .iter()
            .filter_map(std::sync::Weak::upgrade)
            .filter(|watch| watch.resource == resource)
            .count()
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
    /// Delivers what there is: synthetic ADDED events.
    Initial(VecDeque<Arc<Object>>),
    /// Delivers changes.
    Changes,
    /// Over.
    Ended,
}

/// How a watch goes on.
enum Step {
    /// With a line.
    Line(Bytes),
    /// It has done something and has to look again.
    Again,
    /// With a broken connection.
    Broken,
    /// In order, with nothing more.
    End,
}

/// A running watch.
pub(super) struct Watcher {
    state: Arc<Mutex<State>>,
    target: Target,
    selection: Selection,
    writer: Writer,
    phase: Phase,
    /// The revision up to which everything is delivered.
    revision: u64,
    pending: VecDeque<Bytes>,
    latest: Follower,
    bookmarks: Option<Instant>,
    end: Instant,
    fault: Option<StreamFault>,
    drag: Duration,
    delivered: usize,
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
        let (phase, revision, first) = match beginning(&locked, &target, options) {
            Ok((initial, revision)) => {
                (initial.map_or(Phase::Changes, Phase::Initial), revision, None)
            }
            Err(status) => (Phase::Ended, 0, Some(Writer::error(&status))),
        };
        drop(locked);
        Self {
            state: Arc::clone(state),
            selection: options.selection.clone(),
            writer,
            phase,
            revision,
            pending: first.into_iter().collect(),
            latest,
            bookmarks: options.bookmarks.then(|| now + BOOKMARK_EVERY),
            end: now + options.timeout.unwrap_or(DEFAULT_TIMEOUT),
            fault,
            drag: Duration::ZERO,
            delivered: 0,
            handle: watches.open(&target.kind.plural),
            target,
        }
    }

    /// The next piece of the stream; none at its end.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        loop {
            match self.step().await {
                Step::Again => {}
                Step::Line(line) => return Some(Ok(line)),
                Step::Broken => return Some(Err("the connection was cut".into())),
                Step::End => return None,
            }
        }
    }

    async fn step(&mut self) -> Step {
        if self.handle.cut.load(Ordering::Relaxed) {
            return self.cut();
        }
        if let Some(line) = self.pending.pop_front() {
            if !self.drag.is_zero() {
                sleep(self.drag).await;
            }
            return Step::Line(line);
        }
        let delivered = self.delivered;
        if let Some(fault) = self.fault.take_if(|fault| fault.after() <= delivered) {
            return self.suffer(fault).await;
        }
        let due = Instant::now() >= self.due();
        match &mut self.phase {
            Phase::Ended => return Step::End,
            Phase::Initial(objects) => match objects.pop_front() {
                Some(object) => return Step::Line(self.deliver("ADDED", &object)),
                None => self.phase = Phase::Changes,
            },
            Phase::Changes if due => self.mark_time(),
            Phase::Changes => self.read_changes(),
        }
        if self.pending.is_empty() && matches!(self.phase, Phase::Changes) {
            self.wait().await;
        }
        Step::Again
    }

    fn deliver(&mut self, name: &str, object: &Arc<Object>) -> Bytes {
        self.delivered += 1;
        self.writer.event(name, object)
    }

    /// Reads what the history has next.
    fn read_changes(&mut self) {
        self.latest.see();
        let changes = self.state.lock().store.changes(
            &self.target.kind.group_resource(),
            self.revision,
            BATCH,
        );
        let changes = match changes {
            Ok(changes) => changes,
            Err(Compacted { oldest }) => return self.expire(oldest),
        };
        for change in changes {
            // A fault strikes after an exact number of events: what is beyond is not read yet.
            if self.fault.is_some_and(|fault| fault.after() <= self.delivered) {
                return;
            }
            self.revision = change.revision();
            if let Some((name, object)) = self.as_selected(&change) {
                let line = self.deliver(name, &object);
                self.pending.push_back(line);
            }
        }
    }

    /// A change as this watch's selection sees it.
    fn as_selected(&self, change: &Change) -> Option<(&'static str, Arc<Object>)> {
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
        // What leaves the selection is delivered as it last was in it, at the revision it left.
        match (&change.before, after) {
            (Some(before), false) => {
                Some((name, Arc::new(Object::new(before.value().clone(), change.revision()))))
            }
            _ => Some((name, Arc::clone(&change.object))),
        }
    }

    fn expire(&mut self, oldest: u64) {
        self.pending.push_back(Writer::error(&expired(self.revision, oldest)));
        self.phase = Phase::Ended;
    }

    /// The connection breaks; nothing comes after.
    fn cut(&mut self) -> Step {
        self.phase = Phase::Ended;
        self.pending.clear();
        self.fault = None;
        self.handle.cut.store(false, Ordering::Relaxed);
        Step::Broken
    }

    /// A fault's time has come.
    async fn suffer(&mut self, fault: StreamFault) -> Step {
        match fault {
            StreamFault::End { .. } => self.phase = Phase::Ended,
            StreamFault::Cut { .. } => return self.cut(),
            // Only a cut from outside ends the silence.
            StreamFault::Stall { .. } => self.handle.notify.notified().await,
            StreamFault::Expire { .. } => self.expire(self.revision + 1),
            StreamFault::Endless { .. } => {
                self.fault = Some(fault);
                return Step::Line(vec![b'x'; 64 << 10].into());
            }
            StreamFault::Drag { by, .. } => self.drag = by,
        }
        Step::Again
    }

    /// Waits for a change, a bookmark's time or the end.
    async fn wait(&mut self) {
        let due = self.due();
        tokio::select! {
            biased; // what is ready at once comes in the same order in every run
            () = self.handle.notify.notified() => {}
            () = self.latest.changed() => {}
            () = sleep_until(due) => {}
        }
    }

    /// When the clock has something to say next.
    fn due(&self) -> Instant {
        self.bookmarks.unwrap_or(self.end).min(self.end)
    }

    /// It is time for a bookmark, or the end, or both.
    fn mark_time(&mut self) {
        let now = Instant::now();
        if self.bookmarks.is_some() {
            self.revision = self.progress();
            self.pending.push_back(self.writer.bookmark(self.revision));
            self.bookmarks = Some(now + BOOKMARK_EVERY);
        }
        if now >= self.end {
            self.phase = Phase::Ended;
        }
    }

    /// The newest revision, when everything of this kind is delivered; else the revision delivered so far.
    fn progress(&self) -> u64 {
        let state = self.state.lock();
        let next = state.store.changes(&self.target.kind.group_resource(), self.revision, 1);
        match next {
            Ok(changes) if changes.is_empty() => state.store.revision(),
            _ => self.revision,
        }
    }
}

fn expired(since: u64, oldest: u64) -> Status {
    Status::expired(format!("too old resource version: {since} ({oldest})"))
}

/// What there is.
type Initial = Option<VecDeque<Arc<Object>>>;

/// What a watch starts with, if it starts with what there is, and the revision it goes on from.
fn beginning(
    state: &State,
    target: &Target,
    options: &ListOptions,
) -> Result<(Initial, u64), Status> {
    let resource = target.kind.group_resource();
    if let Since::NotOlderThan(revision) = options.since {
        let reached = state.store.reaches(&resource, revision);
        return reached
            .map(|()| (None, revision))
            .map_err(|Compacted { oldest }| expired(revision, oldest));
    }
    let namespace = Some(target.key.namespace.as_str()).filter(|ns| !ns.is_empty());
    let objects = state.store.range(&resource, namespace);
    let selected = objects.filter(|(_, object)| options.selection.matches(object.value()));
    Ok((Some(selected.map(|(_, object)| Arc::clone(object)).collect()), state.store.revision()))
}
