//! What each process has read from the API server and when it sent the request, and the checks of
//! that: before its first DeleteVolume in a term a process has listed anew what a deletion hangs
//! on (safety rule 6), and right before each it has read the PersistentVolume (rule 10).

use std::{collections::BTreeMap, time::Duration};

use http::StatusCode;
use parking_lot::Mutex;
use testkit::apiserver::request_info::RequestInfo;
use tokio::time::Instant;

use super::{core::Core, watching::ATTACHMENTS};

/// The greatest age of the last read before a deletion: two seconds, and the way to the driver.
pub(crate) const FRESH: Duration = Duration::from_millis(2_200);

const VOLUMES: &str = "persistentvolumes";

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Looks(Mutex<BTreeMap<String, Process>>);

#[derive(Debug, Default)]
struct Process {
    /// When each kind's last list that came whole was asked for.
    lists: BTreeMap<String, Instant>,
    /// When each PersistentVolume was last asked for, and answered.
    reads: BTreeMap<String, Instant>,
}

impl Looks {
    /// A list came whole that was asked for then.
    fn listed(&self, process: &str, kind: &str, asked: Instant) {
        let mut all = self.0.lock();
        let lists = &mut all.entry(process.to_owned()).or_default().lists;
        let last = lists.entry(kind.to_owned()).or_insert(asked);
        *last = asked.max(*last);
    }

    fn read(&self, process: &str, name: &str, asked: Instant) {
        let mut all = self.0.lock();
        let reads = &mut all.entry(process.to_owned()).or_default().reads;
        // A slow answer may come after one that was asked for later.
        let last = reads.entry(name.to_owned()).or_insert(asked);
        *last = asked.max(*last);
    }

    /// Whether a list of the kind came whole that was asked for since.
    fn has_listed_since(&self, process: &str, kind: &str, since: Instant) -> bool {
        let all = self.0.lock();
        all.get(process).and_then(|it| it.lists.get(kind)).is_some_and(|asked| *asked >= since)
    }

    /// Whether one of the PersistentVolumes of these names was read a moment ago.
    fn has_just_read(&self, process: &str, names: &[String]) -> bool {
        let all = self.0.lock();
        let Some(reads) = all.get(process).map(|it| &it.reads) else { return false };
        names.iter().filter_map(|name| reads.get(name)).any(|asked| asked.elapsed() <= FRESH)
    }
}

/// Notes what the answer to a request shows, which was sent then.
pub(crate) fn note(
    core: &Core,
    process: &str,
    info: &RequestInfo,
    asked: Instant,
    status: StatusCode,
) {
    let (looks, kind) = (&core.looks, info.resource.as_str());
    let answered = status == StatusCode::OK;
    match info.verb.as_str() {
        "get" if kind == VOLUMES && (answered || status == StatusCode::NOT_FOUND) => {
            looks.read(process, &info.name, asked);
        }
        "list" if answered && info.name.is_empty() => looks.listed(process, kind, asked),
        _ => {}
    }
}

/// A DeleteVolume of a volume whose PersistentVolumes have these names reaches the driver; its caller
/// works since `works`, and one of them `stands` or none does.
pub(crate) fn check_delete(
    core: &Core,
    process: &str,
    works: Instant,
    handle: &str,
    names: &[String],
    stands: bool,
) {
    // What no PersistentVolume stands for nobody can have attached.
    let attachments = (core.plan.attaches && stands).then_some(ATTACHMENTS);
    for kind in std::iter::once(VOLUMES).chain(attachments) {
        if !core.looks.has_listed_since(process, kind, works) {
            core.ledger.wrong(&format!(
                "{process} deletes {handle} and has not listed {kind} since it began to work"
            ));
        }
    }
    // A process that is suspended right after its read sends the call when it goes on.
    if !core.ledger.watching.stood_still(process) && !core.looks.has_just_read(process, names) {
        core.ledger.wrong(&format!("{process} deletes {handle} and has not just read {names:?}"));
    }
}
