//! From when on a process knows of PersistentVolumes: those that were gone when it first listed them it
//! can't know of. And up to when its watch of VolumeAttachments has shown them: what came later it can't know of,
//! as nothing else tells of them. A watch that is refused, or whose history is forgotten, comes back
//! after a wait that grows to a minute, as client-go's does.

use std::{collections::BTreeMap, sync::Arc};

use http::Response;
use http_body_util::{BodyExt as _, StreamBody};
use parking_lot::Mutex;
use testkit::apiserver::Body;
use tokio::time::Instant;

use super::ledger::STALE;

/// What is watched here.
pub(crate) const WATCHED: &str = "volumeattachments";

/// When each process was answered a list of all PersistentVolumes.
#[derive(Debug, Default)]
pub(crate) struct Lists(Mutex<BTreeMap<String, Vec<Instant>>>);

impl Lists {
    /// A list is answered.
    pub(crate) fn answered(&self, process: &str) {
        self.0.lock().entry(process.to_owned()).or_default().push(Instant::now());
    }

    /// The process's first list since `time`; now, where there is none.
    pub(crate) fn first_since(&self, process: &str, time: Instant) -> Instant {
        let lists = self.0.lock();
        let mut since = lists.get(process).into_iter().flatten().filter(|at| **at >= time);
        since.next().copied().unwrap_or_else(Instant::now)
    }
}

/// How far each process's view goes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watching(Arc<Mutex<Views>>);

#[derive(Debug, Default)]
struct Views {
    by_process: BTreeMap<String, View>,
    /// The processes that stand still, and since when.
    still: BTreeMap<String, Instant>,
}

#[derive(Debug, Clone, Copy)]
enum View {
    /// A watch has been open since then; before, the view went so far.
    Open { since: Instant, before: Instant },
    /// It goes so far.
    Until(Instant),
}

impl View {
    fn cut(self, now: Instant) -> Self {
        match self {
            Self::Open { .. } => Self::Until(now),
            until @ Self::Until(_) => until,
        }
    }
}

/// A watch while it is open.
struct Open {
    watching: Watching,
    process: String,
    since: Instant,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.ends(|_| Instant::now());
    }
}

impl Open {
    /// It shows nothing more, and has shown what there was up to then.
    fn ends(&self, until: impl FnOnce(Instant) -> Instant) {
        let views = &mut self.watching.0.lock().by_process;
        let Some(View::Open { since, before }) = views.get(&self.process).copied() else { return };
        // Not the one that came after it.
        if since == self.since {
            views.insert(self.process.clone(), View::Until(until(before)));
        }
    }
}

impl Watching {
    /// Up to when the process was shown everything; none: to this day.
    pub(crate) fn shown_until(&self, process: &str) -> Option<Instant> {
        match self.0.lock().by_process.get(process).copied()? {
            View::Open { since, .. } if since.elapsed() > STALE => None,
            View::Open { before: until, .. } | View::Until(until) => Some(until),
        }
    }

    /// The process stands still.
    pub(crate) fn stands_still(&self, process: &str) {
        self.0.lock().still.insert(process.to_owned(), Instant::now());
    }

    /// It goes on.
    pub(crate) fn goes_on(&self, process: &str) {
        self.0.lock().still.remove(process);
    }

    /// All watches are cut. What a process that stands still has not read by then is lost with them.
    pub(crate) fn cut(&self) {
        let (now, mut views) = (Instant::now(), self.0.lock());
        let Views { by_process, still } = &mut *views;
        for (process, view) in by_process {
            *view = view.cut(still.get(process).copied().unwrap_or(now));
        }
    }

    /// A list is answered.
    pub(crate) fn listed(&self, process: &str) {
        self.0.lock().by_process.insert(process.to_owned(), View::Until(Instant::now()));
    }

    /// A watch is answered, whose end is noticed.
    pub(crate) fn opened(&self, process: &str, response: Response<Body>) -> Response<Body> {
        let (since, process) = (Instant::now(), process.to_owned());
        let mut views = self.0.lock();
        let before = match views.by_process.get(&process).copied() {
            Some(View::Open { .. }) | None => since,
            Some(View::Until(until)) => until,
        };
        views.by_process.insert(process.clone(), View::Open { since, before });
        drop(views);
        let open = Open { watching: self.clone(), process, since };
        let (parts, body) = response.into_parts();
        let frames = futures::stream::unfold((body, open), |(mut body, open)| async move {
            let frame = body.frame().await?;
            let text = frame.as_ref().ok().and_then(|frame| frame.data_ref());
            if text.is_some_and(|text| is_error(text)) {
                open.ends(|before| before);
            }
            Some((frame, (body, open)))
        });
        Response::from_parts(parts, StreamBody::new(frames).boxed_unsync())
    }
}

/// Whether these lines of a watch tell that it has failed.
fn is_error(lines: &[u8]) -> bool {
    String::from_utf8_lossy(lines).contains(r#""type":"ERROR""#)
}
