//! The truth: what was, by the API server's own objects, and the checks that rest on it.
//!
//! Owns the trace, the history of volumes, claims and the Lease that the checks need, and the
//! list of what was found wrong. It is brought up to date after everything that may have written.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use parking_lot::Mutex;
use serde_json::Value;
use testkit::apiserver::ApiServer;
use tokio::time::Instant;

use super::storage::image_of;

/// What the program saw may be so old: the two seconds of safety rule 10, and the time an answer
/// takes to arrive.
pub(crate) const STALE: Duration = Duration::from_millis(4_500);

/// How long a leader may go on without renewing, and how inexact a clock may be.
const TERM: Duration = Duration::from_millis(10_500);

/// The record of one seed.
pub(crate) struct Ledger {
    start: Instant,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    revision: u64,
    lines: String,
    wrong: Vec<String>,
    volumes: BTreeMap<String, VolumeTruth>,
    lease: Option<LeaseTruth>,
    calls: BTreeMap<String, CallsTruth>,
    removals: BTreeMap<String, Removal>,
    suspects: Vec<String>,
}

/// A PersistentVolume that is or was.
#[derive(Debug, Clone, Default)]
struct VolumeTruth {
    name: String,
    handle: String,
    /// When it was first bound.
    bound: Option<Instant>,
    /// Since when its volume may not be deleted; none when it may.
    kept: Option<Instant>,
    gone: Option<Instant>,
    created: Option<Instant>,
    /// An administrator has taken its finalizers off, or deleted it when it had none.
    stripped: bool,
}

#[derive(Debug, Clone)]
struct LeaseTruth {
    holder: String,
    since: Instant,
    version: String,
    written: Instant,
}

/// The CreateVolume calls for one claim.
#[derive(Debug, Clone, Default)]
struct CallsTruth {
    made: usize,
    /// The process that sent the last one, while its end is not known.
    open: Option<String>,
    /// A process ended and left this open, or unsaved.
    abandoned: Option<Abandoned>,
}

/// How a claim's volume was left by a process that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abandoned {
    /// Killed in its first call.
    InFirstCall,
    /// In any other way.
    Otherwise,
}

#[derive(Debug, Clone)]
struct Removal {
    process: String,
    volume: Option<String>,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), inner: Mutex::default() }
    }

    /// Adds a line to the trace.
    pub(crate) fn tell(&self, what: &str) {
        let at = self.start.elapsed();
        let _ = writeln!(self.inner.lock().lines, "{:>9.3} {what}", at.as_secs_f64());
    }

    /// Something is as it must not be.
    pub(crate) fn wrong(&self, what: &str) {
        self.tell(&format!("WRONG: {what}"));
        self.inner.lock().wrong.push(what.to_owned());
    }

    /// What was found wrong.
    pub(crate) fn verdict(&self) -> Vec<String> {
        self.inner.lock().wrong.clone()
    }

    pub(crate) fn trace(&self) -> String {
        self.inner.lock().lines.clone()
    }

    /// The program says that a volume may be left behind.
    pub(crate) fn suspected(&self, what: &str) {
        self.tell(&format!("suspect: {what}"));
        self.inner.lock().suspects.push(what.to_owned());
    }

    /// Whether the program has said that this volume may be left behind.
    pub(crate) fn is_suspect(&self, handle: &str) -> bool {
        self.inner.lock().suspects.iter().any(|told| told.contains(handle))
    }

    /// How the volume of this claim was abandoned, where it was.
    pub(crate) fn abandoned(&self, uid: &str) -> Option<Abandoned> {
        self.inner.lock().calls.get(uid).and_then(|calls| calls.abandoned)
    }

    /// An administrator takes the finalizers off a PersistentVolume, or has deleted it without any.
    pub(crate) fn stripped(&self, uid: &str) {
        if let Some(volume) = self.inner.lock().volumes.get_mut(uid) {
            volume.stripped = true;
        }
    }

    /// Whether people have given the image up: they retained it, or took its PersistentVolume
    /// away by force.
    pub(crate) fn was_given_up(&self, image: &str) -> bool {
        let inner = self.inner.lock();
        let mut volumes = inner.volumes.values().filter(|volume| image_of(&volume.handle) == image);
        volumes.any(|volume| volume.gone.is_some() && (volume.stripped || volume.kept.is_some()))
    }

    // === What the API server holds ===

    /// Takes in what has changed.
    pub(crate) fn catch_up(&self, api: &ApiServer) {
        let now = Instant::now();
        let mut inner = self.inner.lock();
        if inner.revision == api.revision() {
            return;
        }
        inner.revision = api.revision();
        inner.see_volumes(api, now);
        inner.see_lease(api, now);
    }

    // === Checks at the moment of the act ===

    /// A CreateVolume of this name reaches the driver.
    pub(crate) fn create_begins(&self, process: &str, host: Option<&str>, name: &str) {
        self.in_term(host, &format!("CreateVolume {name}"));
        let mut inner = self.inner.lock();
        let old = |at: Option<Instant>| at.is_some_and(|at| at.elapsed() > STALE);
        let bound = inner
            .volumes
            .values()
            .find(|volume| image_of(&volume.handle) == name && old(volume.bound))
            .map(|volume| volume.name.clone());
        let calls = inner.calls.entry(name.to_owned()).or_default();
        calls.made += 1;
        calls.open = Some(process.to_owned());
        drop(inner);
        if let Some(volume) = bound {
            self.wrong(&format!("{process} asks for {name}, which {volume} had and was bound"));
        }
    }

    /// The driver's answer to a CreateVolume: nothing is open any more if it says that there is no
    /// volume.
    pub(crate) fn create_ended(&self, name: &str, nothing_left: bool) {
        let mut inner = self.inner.lock();
        if let Some(calls) = inner.calls.get_mut(name)
            && nothing_left
        {
            calls.open = None;
        }
    }

    /// A DeleteVolume of this handle reaches the driver, which holds such a volume or not.
    pub(crate) fn delete_begins(&self, process: &str, host: Option<&str>, handle: &str) {
        self.in_term(host, &format!("DeleteVolume {handle}"));
        let wrong = self.inner.lock().objections(process, handle);
        for why in wrong {
            self.wrong(&format!("{process} deletes {handle}: {why}"));
        }
    }

    /// The driver has removed the volume, and the process `process` is told so.
    pub(crate) fn removed(&self, process: &str, handle: &str) {
        let mut inner = self.inner.lock();
        let volume = inner.owner(handle);
        let removal = Removal { process: process.to_owned(), volume };
        inner.removals.insert(handle.to_owned(), removal);
    }

    /// A process has ended: what it had open nobody knows of any more.
    pub(crate) fn ended(&self, process: &str, killed: bool) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        for (name, calls) in &mut inner.calls {
            if calls.open.as_deref() == Some(process) {
                calls.open = None;
                let first = killed && calls.made == 1;
                calls.abandoned =
                    Some(if first { Abandoned::InFirstCall } else { Abandoned::Otherwise });
                let _ = writeln!(inner.lines, "          {process} leaves {name} open");
            }
        }
    }

    /// The PersistentVolume that was just saved must be of a volume that is there.
    pub(crate) fn saved(&self, process: &str, name: &str, handle: &str, alive: bool) {
        if let Some(calls) = self.inner.lock().calls.get_mut(image_of(handle)) {
            calls.open = None;
        }
        if !alive {
            self.wrong(&format!(
                "{process} saves {name} of {handle}, which the driver does not have"
            ));
        }
    }

    /// With leader election work is begun in a term only.
    fn in_term(&self, host: Option<&str>, what: &str) {
        let Some(host) = host else { return };
        let lease = self.inner.lock().lease.clone();
        let wrong = match lease {
            None => Some("there is no Lease".to_owned()),
            Some(lease) if lease.holder != host => (lease.since.elapsed() > TERM).then(|| {
                format!("the Lease has been {:?}'s for {:?}", lease.holder, lease.since.elapsed())
            }),
            Some(lease) => (lease.written.elapsed() > TERM)
                .then(|| format!("the Lease was last renewed {:?} ago", lease.written.elapsed())),
        };
        if let Some(why) = wrong {
            self.wrong(&format!("{host} begins {what} out of its term: {why}"));
        }
    }
}

impl Inner {
    fn see_volumes(&mut self, api: &ApiServer, now: Instant) {
        let mut there = Vec::new();
        for object in api.objects("PersistentVolume") {
            let volume = object.value();
            let uid = text(volume, "/metadata/uid").to_owned();
            let truth = self.volumes.entry(uid.clone()).or_insert_with(|| VolumeTruth {
                name: text(volume, "/metadata/name").to_owned(),
                handle: text(volume, "/spec/csi/volumeHandle").to_owned(),
                kept: Some(now),
                created: Some(now),
                ..VolumeTruth::default()
            });
            if text(volume, "/status/phase") == "Bound" {
                truth.bound.get_or_insert(now);
            }
            if may_go(volume) {
                truth.kept = None;
            } else {
                truth.kept.get_or_insert(now);
            }
            there.push(uid);
        }
        for (uid, truth) in &mut self.volumes {
            if !there.contains(uid) {
                truth.gone.get_or_insert(now);
            }
        }
    }

    fn see_lease(&mut self, api: &ApiServer, now: Instant) {
        let Some(object) = api.objects("Lease").into_iter().next() else { return };
        let lease = object.value();
        let (holder, version) =
            (text(lease, "/spec/holderIdentity"), text(lease, "/metadata/resourceVersion"));
        match &mut self.lease {
            Some(known) if known.version == version => {}
            Some(known) if known.holder == holder => {
                (known.version, known.written) = (version.to_owned(), now);
            }
            known => {
                *known = Some(LeaseTruth {
                    holder: holder.to_owned(),
                    since: now,
                    version: version.to_owned(),
                    written: now,
                });
            }
        }
    }

    /// The PersistentVolume that has the handle now.
    fn owner(&self, handle: &str) -> Option<String> {
        let owner = |(_, volume): &(&String, &VolumeTruth)| {
            volume.handle == handle && volume.gone.is_none()
        };
        self.volumes.iter().find(owner).map(|(uid, _)| uid.clone())
    }

    /// Why the volume must not be deleted now.
    fn objections(&self, process: &str, handle: &str) -> Vec<String> {
        let old = |at: Option<Instant>| at.is_some_and(|at| at.elapsed() > STALE);
        let same = || self.volumes.values().filter(|volume| volume.handle == handle);
        let standing: Vec<_> = same().filter(|volume| volume.gone.is_none()).collect();
        let mut why = Vec::new();
        for volume in standing.iter().filter(|volume| old(volume.kept)) {
            why.push(format!("{} is not Released with the policy Delete", volume.name));
        }
        if standing.iter().filter(|volume| old(volume.created)).count() > 1 {
            why.push("several PersistentVolumes have it".to_owned());
        }
        if standing.is_empty() && same().any(|volume| volume.bound.is_some() && old(volume.gone)) {
            why.push("its PersistentVolume was bound and is gone".to_owned());
        }
        if let Some(removal) = self.removals.get(handle)
            && removal.process == process
            && removal.volume.is_some()
            && removal.volume == self.owner(handle)
        {
            why.push("it was told that this is done".to_owned());
        }
        why
    }
}

/// Whether the volume of this PersistentVolume may be deleted.
fn may_go(volume: &Value) -> bool {
    text(volume, "/status/phase") == "Released"
        && text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete"
}

/// The text at a path; empty when there is none.
pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}
