//! From when on a process knows of PersistentVolumes: those that were gone when it first listed them it
//! can't know of. And up to when its watches have shown it what there is: what came later it can't
//! know of unless something else shows it. A watch that is refused, or whose history is forgotten, comes
//! back after a wait that grows to a minute, as client-go's does; and a process that stands still
//! reads nothing.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::Response;
use http_body_util::{BodyExt as _, StreamBody};
use parking_lot::Mutex;
use testkit::apiserver::Body;
use tokio::time::Instant;

use super::ledger::STALE;

/// What delivers attachments.
pub(crate) const ATTACHMENTS: &str = "volumeattachments";

/// What delivers claims.
pub(crate) const CLAIMS: &str = "persistentvolumeclaims";

/// What delivers classes.
pub(crate) const CLASSES: &str = "storageclasses";

/// What delivers PersistentVolumes.
pub(crate) const VOLUMES: &str = "persistentvolumes";

/// What is watched here.
pub(crate) const WATCHED: [&str; 4] = [ATTACHMENTS, CLAIMS, CLASSES, VOLUMES];

/// Longer than any failure that a watch notices.
const LONG: usize = 4 << 10;

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

/// How far each process's views go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watching(Arc<Mutex<Views>>);

#[derive(Debug, Default)]
struct Views {
    /// By process and by what is watched.
    all: BTreeMap<(String, String), View>,
    /// How far the view went before the last list, by which what is done soon after may have been begun.
    earlier: BTreeMap<(String, String), Earlier>,
    /// When each process stood still, in order.
    still: BTreeMap<String, Vec<Gap>>,
    /// When the watches of each kind were held up, in order.
    held_up: BTreeMap<String, Vec<Gap>>,
}

impl Views {
    /// When that began by which the process's watch of the kind shows nothing, or did a moment ago.
    fn gap(&self, (process, kind): &(String, String)) -> Option<Instant> {
        let gaps = [self.still.get(process), self.held_up.get(kind)];
        start_of(&gaps.into_iter().flatten().flatten())
    }

    /// Up to when the view shows everything, or showed it to what may still go by it; none: to this day.
    fn end(&self, key: &(String, String)) -> Option<Instant> {
        let gap = self.gap(key);
        let end = self.all.get(key).and_then(|view| view.end_with(gap));
        let now = gap.unwrap_or_else(Instant::now);
        let earlier = self.earlier.get(key).filter(|earlier| now < earlier.counts);
        end.into_iter().chain(earlier.map(|earlier| earlier.end)).min()
    }
}

/// When that began which lasts or has only just ended: a gap, and those before it that another followed
/// at once, as nothing was shown between them.
fn start_of<'a>(gaps: &(impl Iterator<Item = &'a Gap> + Clone)) -> Option<Instant> {
    let mut start = None;
    loop {
        let shown = start.unwrap_or_else(Instant::now);
        let reaches = |gap: &&Gap| gap.since < shown && gap.lasts_to(shown);
        match gaps.clone().filter(reaches).map(|gap| gap.since).min() {
            Some(earlier) => start = Some(earlier),
            None => return start,
        }
    }
}

/// A view that a list has brought up to date.
#[derive(Debug, Clone, Copy)]
struct Earlier {
    /// It went so far.
    end: Instant,
    /// Until when something may still go by it.
    counts: Instant,
}

/// A time in which nothing was shown.
#[derive(Debug, Clone, Copy)]
struct Gap {
    since: Instant,
    /// Its end, where that is known.
    until: Option<Instant>,
}

impl Gap {
    /// Whether it lasted then, or had only just ended.
    fn lasts_to(&self, then: Instant) -> bool {
        self.until.is_none_or(|until| until + STALE > then)
    }
}

#[derive(Debug, Clone, Copy)]
enum View {
    /// A watch has been open since then; before, the view went so far.
    Open { since: Instant, before: Instant },
    /// It goes so far.
    Until(Instant),
}

impl View {
    /// It ends now, after a `gap` that began then.
    fn cut(self, gap: Option<Instant>) -> Self {
        let end = gap.into_iter().chain(self.end_with(gap)).min();
        Self::Until(end.unwrap_or_else(Instant::now))
    }

    /// Up to when it shows everything, none being to this day, where nothing was shown since the `gap`
    /// began: a watch that was opened just before that, or since, has shown nothing yet.
    fn end_with(self, gap: Option<Instant>) -> Option<Instant> {
        match self {
            Self::Open { since, before } if gap.is_some_and(|gap| gap < since + STALE) => {
                Some(before)
            }
            other => other.end(),
        }
    }

    /// Up to when it shows everything; none: to this day.
    fn end(self) -> Option<Instant> {
        match self {
            Self::Open { since, .. } if since.elapsed() > STALE => None,
            Self::Open { before: until, .. } | Self::Until(until) => Some(until),
        }
    }
}

/// A watch while it is open.
struct Open {
    watching: Watching,
    key: (String, String),
    since: Instant,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.ends(true);
    }
}

impl Open {
    /// It shows nothing more; whether it has shown what there was.
    fn ends(&self, shown: bool) {
        let mut views = self.watching.0.lock();
        let Some(view @ View::Open { since, before }) = views.all.get(&self.key).copied() else {
            return;
        };
        // Not the one that came after it.
        if since == self.since {
            let gap = views.gap(&self.key);
            let view = if shown { view.cut(gap) } else { View::Until(before) };
            views.all.insert(self.key.clone(), view);
        }
    }
}

impl Watching {
    /// Up to when the process was shown all attachments; none: to this day.
    pub(crate) fn shown_until(&self, process: &str) -> Option<Instant> {
        self.0.lock().all.get(&key(process, ATTACHMENTS)).and_then(|view| view.end())
    }

    /// Up to when the process knows of everything of the kind, whatever it was held up by.
    pub(crate) fn known_until(&self, process: &str, kind: &str) -> Instant {
        let (views, key) = (self.0.lock(), key(process, kind));
        let gap = views.gap(&key);
        let end = views.end(&key);
        before(gap.into_iter().chain(end).min().unwrap_or_else(Instant::now), STALE)
    }

    /// Up to when the process knows of what nothing but its own standing still keeps from it.
    pub(crate) fn awake_until(&self, process: &str) -> Instant {
        before(self.still(process).unwrap_or_else(Instant::now), STALE)
    }

    /// Whether the process has stood still a moment ago.
    pub(crate) fn stood_still(&self, process: &str) -> bool {
        self.still(process).is_some()
    }

    /// When it began to, if that lasts or has only just ended.
    pub(crate) fn still(&self, process: &str) -> Option<Instant> {
        start_of(&self.0.lock().still.get(process).into_iter().flatten())
    }

    /// The process stands still.
    pub(crate) fn stands_still(&self, process: &str) {
        let gap = Gap { since: Instant::now(), until: None };
        self.0.lock().still.entry(process.to_owned()).or_default().push(gap);
    }

    /// It goes on.
    pub(crate) fn goes_on(&self, process: &str) {
        let mut views = self.0.lock();
        if let Some(gap) = views.still.get_mut(process).and_then(|gaps| gaps.last_mut()) {
            gap.until = Some(Instant::now());
        }
    }

    /// The watches of the kind show nothing for so long.
    pub(crate) fn held_up(&self, kind: &str, time: Duration) {
        let now = Instant::now();
        let mut views = self.0.lock();
        let gaps = views.held_up.entry(kind.to_owned()).or_default();
        if let Some(last) = gaps.last_mut() {
            last.until = last.until.map(|until| until.min(now));
        }
        gaps.push(Gap { since: now, until: Some(now + time) });
    }

    /// All watches are cut. What a process that stands still has not read by then is lost with them.
    pub(crate) fn cut(&self) {
        let mut views = self.0.lock();
        let cut = |(key, view): (&(String, String), &View)| {
            let over = matches!(view, View::Until(_));
            (key.clone(), if over { *view } else { view.cut(views.gap(key)) })
        };
        let all = views.all.iter().map(cut).collect();
        views.all = all;
    }

    /// A list is answered.
    pub(crate) fn listed(&self, process: &str, kind: &str) {
        let (now, key, mut views) = (Instant::now(), key(process, kind), self.0.lock());
        if let Some(end) = views.end(&key) {
            views.earlier.insert(key.clone(), Earlier { end, counts: now + STALE });
        }
        views.all.insert(key, View::Until(now));
    }

    /// A watch is answered, whose end is noticed.
    pub(crate) fn opened(
        &self,
        process: &str,
        kind: &str,
        response: Response<Body>,
    ) -> Response<Body> {
        let (since, key) = (Instant::now(), key(process, kind));
        let mut views = self.0.lock();
        let before = match views.all.get(&key).copied() {
            Some(View::Open { .. }) | None => since,
            Some(View::Until(until)) => until,
        };
        views.all.insert(key.clone(), View::Open { since, before });
        drop(views);
        let open = Open { watching: self.clone(), key, since };
        let (parts, body) = response.into_parts();
        let frames = futures::stream::unfold((body, open), |(mut body, open)| async move {
            let frame = body.frame().await?;
            match &frame {
                Ok(frame) if frame.data_ref().is_some_and(|text| is_error(text)) => {
                    open.ends(false);
                }
                Ok(_) => {}
                Err(_) => open.ends(true),
            }
            Some((frame, (body, open)))
        });
        Response::from_parts(parts, StreamBody::new(frames).boxed_unsync())
    }
}

/// So long before then, or as long as the machine knows of.
pub(crate) fn before(then: Instant, time: Duration) -> Instant {
    then.checked_sub(time).unwrap_or(then)
}

fn key(process: &str, kind: &str) -> (String, String) {
    (process.to_owned(), kind.to_owned())
}

/// Whether these lines of a watch say that it has failed.
fn is_error(lines: &[u8]) -> bool {
    lines.len() < LONG && has(lines, r#""type":"ERROR""#)
}

/// Whether the text stands in the lines.
fn has(lines: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(lines).contains(text)
}
