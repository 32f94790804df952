//! The history of the API server's objects, and the checks that compare the program's acts with it.
//!
//! Owns the trace, the history of volumes, claims and the Lease that the checks need (`observations` reads
//! it from the objects), and the list of violations (`queries` decides what is one). It is updated after
//! everything that may have written.

mod observations;
mod queries;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::Value;
use testkit::apiserver::ApiServer;
use tokio::time::Instant;

pub(crate) use self::observations::{Recorded, is_attached, is_recorded};
use self::queries::View;

use super::{
    looks::FRESH,
    naming::may_be_of,
    process::EXTERNAL_PROVISIONER,
    storage::{Storage, image_of, name_of, node_of},
    watching::{self, Lists, Watching},
};

/// What the program saw may be so old where it has not read it for what it does: an answer takes
/// its time to arrive, and so does what follows from it.
pub(crate) const STALE: Duration = Duration::from_millis(4_500);

/// For so long terminal errors must have come to be believed.
const BELIEVED: Duration = Duration::from_secs(120);

/// So long what a watch should show may be unknown, when watches stand still: for what is only
/// known from watches.
const UNSEEN: Duration = Duration::from_secs(400);

/// How long a leader may go on without renewing, and how inexact a clock may be.
const TERM: Duration = Duration::from_millis(10_500);

/// The record of one seed.
pub(crate) struct Ledger {
    start: Instant,
    pub lists: Lists,
    pub watching: Watching,
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
    /// When a driver removed the volume of each handle.
    emptied: BTreeMap<String, Instant>,
    suspects: Vec<String>,
    /// Those of claims that nobody wanted any more.
    let_go: BTreeSet<String>,
    /// Every claim that is or was, by UID, and since when it has been deleted.
    claims: BTreeMap<String, Option<Instant>>,
    /// Since when those that name a volume do, and its name.
    named: BTreeMap<String, (Instant, String)>,
    /// Those whose finalizers or record a user took off.
    stripped_claims: BTreeSet<String>,
    /// The processes that have ended.
    ended: BTreeSet<String>,
    /// Those of them that were killed: a call that they have sent may arrive later.
    killed: BTreeSet<String>,
    /// The handles of volumes that were saved after a process that has ended had asked for their removal.
    removed_late: BTreeSet<String>,
    /// Those on which a user wrote what only the program should.
    tampered: BTreeSet<String>,
    /// The volumes of the records that the program does not follow, as it says.
    unfollowed: BTreeSet<String>,
    /// Those that carry the record of an open call, and what it says.
    recorded: BTreeMap<String, (Instant, Recorded)>,
    /// Those that ever did.
    ever_recorded: BTreeSet<String>,
    /// Names that a PersistentVolume of another volume had.
    taken: BTreeSet<String>,
    /// Since when each PersistentVolume has been attached.
    attached: BTreeMap<String, Instant>,
    /// What drivers work on for callers who wait, by number.
    jobs: BTreeMap<u64, Job>,
    jobs_so_far: u64,
    /// From when to when there was no quota left, and no record could be written.
    used_up: Vec<(Instant, Instant)>,
}

/// What a driver works on.
#[derive(Debug, Clone)]
struct Job {
    process: String,
    /// The identity its caller is elected under.
    host: String,
    what: String,
    /// Until when its caller waits.
    until: Instant,
}

/// A PersistentVolume that is or was.
#[derive(Debug, Clone, Default)]
struct VolumeTruth {
    name: String,
    handle: String,
    /// The UID of the claim it is or was for.
    claim: String,
    by_hand: bool,
    /// A provisioner has made it, or a backup says so.
    provisioned: bool,
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
    /// As it was written last, other than by hand.
    spec: Value,
    written: Instant,
}

/// The CreateVolume calls for one claim.
#[derive(Debug, Clone, Default)]
struct CallsTruth {
    /// When the first of them since the last that left nothing began.
    first: Option<Instant>,
    /// Until when the sender of that one can have seen what was so.
    awake: Option<Instant>,
    /// For how long each process that sent one since then could have recorded it on the claim.
    senders: BTreeMap<String, Sender>,
    /// How many began since then.
    since: usize,
    /// The process that sent the last one, while its end is not known.
    open: Option<String>,
    /// The processes whose calls for the volume have made it or did not end, and since when, since one was
    /// saved: a PersistentVolume closes every call (safety rule 3), also when it goes again (rule 13).
    unfinished: BTreeMap<String, Instant>,
    /// A process ended and left this open, or unsaved.
    abandoned: Option<Abandoned>,
    /// When the terminal errors came since the last one of another kind.
    terminal_errors: Vec<Instant>,
    /// The other names under which calls for the same claim were under way when one of these began,
    /// and its sender does not know.
    beside: BTreeSet<String>,
    /// Until when the sender of the last one was shown PersistentVolumes.
    shown: Option<Instant>,
}

/// A process that has sent calls for a claim.
#[derive(Debug, Clone, Copy)]
struct Sender {
    /// When its first one began.
    first: Instant,
    /// When it was killed, or stood still until another process had sent one.
    until: Option<Instant>,
}

/// How a claim's volume was left by a process that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abandoned {
    /// Killed in its first call, which nothing recorded.
    InFirstCall,
    /// Without a record on the claim.
    Unrecorded {
        /// It got no SIGTERM.
        killed: bool,
        /// The time since the first call began, but that in which quota refused every record.
        after: Duration,
    },
    /// In any other way.
    Otherwise,
    /// By external-provisioner, which records nothing.
    ByOriginal,
}

/// A driver has removed a volume.
#[derive(Debug, Clone)]
pub(crate) struct Removal {
    pub(crate) process: String,
    pub(crate) began: Instant,
    /// The UID of its PersistentVolume.
    pub(crate) volume: Option<String>,
    /// The process has the answer; it does not have it while it is suspended.
    pub(crate) answered: bool,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            lists: Lists::default(),
            watching: Watching::default(),
            inner: Mutex::default(),
        }
    }

    /// Adds a line to the trace.
    pub(crate) fn log(&self, what: &str) {
        let at = self.start.elapsed();
        let _ = writeln!(self.inner.lock().lines, "{:>9.3} {what}", at.as_secs_f64());
    }

    /// Something is as it must not be.
    pub(crate) fn wrong(&self, what: &str) {
        self.log(&format!("WRONG: {what}"));
        self.inner.lock().wrong.push(what.to_owned());
    }

    /// What was found wrong.
    pub(crate) fn verdict(&self) -> Vec<String> {
        self.inner.lock().wrong.clone()
    }

    pub(crate) fn trace(&self) -> String {
        self.inner.lock().lines.clone()
    }

    /// The program says that a volume may be left behind. `is_let_go`: of a claim that nobody wants any
    /// more; false where that was said before.
    pub(crate) fn suspected(&self, what: &str, is_let_go: bool) -> bool {
        self.log(&format!("suspect: {what}"));
        let mut inner = self.inner.lock();
        inner.suspects.push(what.to_owned());
        !is_let_go || inner.let_go.insert(what.to_owned())
    }

    /// The program says that it does not follow a record of an open call, which names this volume.
    pub(crate) fn unfollowed(&self, volume: &str) {
        self.log(&format!("unfollowed: {volume}"));
        self.inner.lock().unfollowed.insert(volume.to_owned());
    }

    /// Whether the program has said that this volume may be left behind.
    pub(crate) fn is_suspect(&self, name: &str) -> bool {
        self.inner.lock().is_reported(name)
    }

    /// How the volume of this name was abandoned, where it was: by a process that has ended, or that
    /// has given the Lease back and is about to.
    pub(crate) fn abandoned(&self, name: &str) -> Option<Abandoned> {
        let inner = self.inner.lock();
        let abandoned = inner.calls.get(name).and_then(|calls| calls.abandoned);
        abandoned.or_else(|| inner.is_overtaken(name).then_some(Abandoned::Otherwise))
    }

    /// Whether the volume of this name had a record, which a user took off its claim.
    pub(crate) fn was_stripped(&self, name: &str) -> bool {
        self.inner.lock().stripped_claims.iter().any(|uid| may_be_of(name, uid))
    }

    /// Whether another volume's PersistentVolume had this name, which was reported, or the
    /// claim got another volume's from a backup, which ends what was asked for it (safety rule 3).
    pub(crate) fn was_taken(&self, name: &str) -> bool {
        let inner = self.inner.lock();
        let replaces = |volume: &VolumeTruth| {
            volume.by_hand
                && volume.provisioned
                && may_be_of(name, &volume.claim)
                && image_of(&volume.handle) != name
        };
        inner.taken.contains(name_of(name)) || inner.volumes.values().any(replaces)
    }

    /// Whether a PersistentVolume has stood under the name of another one's volume: whoever has that to
    /// save waits for the name.
    pub(crate) fn is_a_name_taken(&self) -> bool {
        !self.inner.lock().taken.is_empty()
    }

    /// Whether the volume of this handle was removed by another handle, which somebody gave a
    /// PersistentVolume by hand: that they mean the same only the driver knows.
    pub(crate) fn went_by_another_handle(&self, handle: &str) -> bool {
        self.inner.lock().went_by_another_handle(handle)
    }

    /// Whether the claim of this volume was deleted, or bound to another, before any process had had that
    /// time after its first call for it: no record is put on it then.
    pub(crate) fn was_deleted_within(&self, name: &str, time: Duration) -> bool {
        let inner = self.inner.lock();
        let Some(calls) = inner.calls.get(name).filter(|calls| calls.first.is_some()) else {
            return false;
        };
        let soon = |deleted: Instant| {
            calls.senders.values().all(|sender| {
                let until = sender.until.map_or(deleted, |until| until.min(deleted));
                inner.recordable(sender.first, until) < time
            })
        };
        let bound = |uid: &String| {
            let named = inner.named.get(uid).filter(|(_, named)| named != name);
            named.map(|(since, _)| *since)
        };
        inner.claims.iter().any(|(uid, deleted)| {
            may_be_of(name, uid) && deleted.iter().chain(&bound(uid)).any(|over| soon(*over))
        })
    }

    /// Whether a process or the record on its claim, which stands, knows of the open call for this volume,
    /// and what a user has written there keeps it from being asked after.
    pub(crate) fn is_kept_waiting(&self, name: &str) -> bool {
        let inner = self.inner.lock();
        let stands = |uid: &String| inner.claims.get(uid).is_some_and(Option::is_none);
        let claim =
            inner.sole_claim(name).filter(|uid| stands(uid) && inner.tampered.contains(*uid));
        claim.is_some_and(|uid| {
            inner.calls.get(name).is_some_and(|calls| calls.open.is_some())
                || inner.recorded.get(uid).is_some_and(|(_, record)| record.is_for(name))
        })
    }

    /// How many calls the process has made whose volume is neither saved nor removed; and calls for claims
    /// that stand and name another volume by now, of which it need not know that they have ended.
    pub(crate) fn left_open_by(&self, process: &str) -> u64 {
        let inner = self.inner.lock();
        let stands = |uid: &&String| inner.claims.get(*uid).is_some_and(Option::is_none);
        let names_another = |name: &String| {
            let claim = inner.sole_claim(name).filter(stands);
            claim.and_then(|uid| inner.named.get(uid)).is_some_and(|(_, named)| named != name)
        };
        let open = inner.calls.iter().filter(|(name, calls)| {
            calls.open.as_deref() == Some(process)
                || calls.unfinished.contains_key(process) && names_another(name)
        });
        open.count() as u64
    }

    /// From now on until then quota refuses what needs some, whatever was said before.
    pub(crate) fn quota_used_up(&self, until: Instant) {
        let (now, mut inner) = (Instant::now(), self.inner.lock());
        if let Some((_, end)) = inner.used_up.last_mut() {
            *end = now.min(*end);
        }
        inner.used_up.push((now, until));
    }

    /// The claims that had the call of an ended process on record, or have an unfinished one of this
    /// process, and whose volume's name another claim's PersistentVolume has: whoever knows of the
    /// call follows it until that goes.
    pub(crate) fn followed_behind_others(&self, process: &str) -> BTreeSet<String> {
        let inner = self.inner.lock();
        let followed = inner.claims.keys().filter(|uid| inner.waits_behind_another(uid, process));
        followed.cloned().collect()
    }

    /// Whether the process of this host works: without election always.
    pub(crate) fn may_work(&self, host: Option<&str>) -> bool {
        let inner = self.inner.lock();
        host.is_none_or(|host| inner.lease.as_ref().is_some_and(|lease| lease.holder == host))
    }

    /// Whether the call under way for this volume is the first that may have made it.
    pub(crate) fn is_first_call(&self, name: &str) -> bool {
        let inner = self.inner.lock();
        inner.calls.get(name).is_some_and(|calls| calls.since == 1 && calls.abandoned.is_none())
    }

    /// Whether the claim of this volume has or had a PersistentVolume, which closes every call.
    pub(crate) fn had_volume(&self, name: &str) -> bool {
        self.inner
            .lock()
            .volumes
            .values()
            .any(|volume| !volume.claim.is_empty() && may_be_of(name, &volume.claim))
    }

    /// A user takes the finalizers off a claim.
    pub(crate) fn claim_stripped(&self, uid: &str) {
        self.inner.lock().stripped_claims.insert(uid.to_owned());
    }

    /// A user writes what he likes on a claim.
    pub(crate) fn tampered(&self, uid: &str) {
        self.inner.lock().tampered.insert(uid.to_owned());
    }

    /// Whether a user has.
    pub(crate) fn is_tampered(&self, uid: &str) -> bool {
        self.inner.lock().tampered.contains(uid)
    }

    /// An administrator takes the finalizers off a PersistentVolume, or has deleted it without any.
    pub(crate) fn stripped(&self, uid: &str) {
        if let Some(volume) = self.inner.lock().volumes.get_mut(uid) {
            volume.stripped = true;
        }
    }

    /// Whether PersistentVolumes have the handle, and none of them the name of its image.
    pub(crate) fn is_named_otherwise(&self, handle: &str) -> bool {
        let inner = self.inner.lock();
        let standing = |volume: &&VolumeTruth| volume.handle == handle && volume.gone.is_none();
        let mut names = inner.volumes.values().filter(standing).map(|volume| volume.name.as_str());
        inner.owner(handle).is_some() && names.all(|name| name != name_of(image_of(handle)))
    }

    /// Whether people have given the image up: they retained it, or took its PersistentVolume
    /// away by force.
    pub(crate) fn was_given_up(&self, image: &str) -> bool {
        self.inner.lock().was_given_up(image)
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
        inner.see_claims(api, now);
        inner.see_volumes(api, now);
        inner.see_attachments(api, now);
        let released = inner.see_lease(api, now);
        drop(inner);
        for what in released {
            self.wrong(&what);
        }
    }

    // === Checks at the moment of the act ===

    /// A CreateVolume of this name reaches the driver; whether it repeats one of the process that did
    /// not end. The caller works since `start`, or since it leads.
    pub(crate) fn create_begins(
        &self,
        process: &str,
        host: Option<&str>,
        start: Instant,
        name: &str,
    ) -> bool {
        self.in_term(host, &format!("CreateVolume {name}"));
        let works = self.works_since(host, start);
        let mut inner = self.inner.lock();
        // What a claim says of its volume ends no call, as its user may write it.
        let shown = self.watching.known_until(process, watching::VOLUMES);
        // A process may stand still between its last look and its call.
        let awake = self.watching.awake_until(process);
        let known = shown.min(awake);
        let bound = inner.all_had(name, self.lists.first_since(process, works), known);
        let beside = inner.unknown_beside(process, name);
        // Whoever had it open before leads no longer, and may end later.
        let before = inner.calls.get(name).and_then(|calls| calls.open.clone());
        if let Some(before) = before.filter(|before| before != process) {
            inner.abandon(&before, name, false);
            let still = self.watching.still(&before);
            inner.sends_no_more(&before, name, still.unwrap_or_else(Instant::now));
        }
        let calls = inner.calls.entry(name.to_owned()).or_default();
        calls.beside.extend(beside);
        calls.shown = Some(shown);
        calls.since += 1;
        let first = Instant::now();
        if calls.first.is_none() {
            (calls.first, calls.awake) = (Some(first), Some(awake));
        }
        calls.senders.entry(process.to_owned()).or_insert(Sender { first, until: None });
        calls.open = Some(process.to_owned());
        let repeats = calls.unfinished.contains_key(process);
        calls.unfinished.entry(process.to_owned()).or_insert(first);
        if inner.killed.contains(process) {
            inner.abandon(process, name, true);
            inner.sends_no_more(process, name, first);
        }
        drop(inner);
        if let Some(volume) = bound {
            self.wrong(&format!("{process} asks for {name}, which {volume} had and was bound"));
        }
        repeats
    }

    /// A driver makes a volume for a process, while there are `others`.
    pub(crate) fn made(&self, process: &str, name: &str, others: &[String]) {
        let inner = self.inner.lock();
        let second = inner.sole_claim(name).filter(|_| !inner.is_left(name)).and_then(|uid| {
            let same = |other: &&String| {
                inner.sole_claim(other) == Some(uid)
                    && !inner.is_left(other)
                    && !inner.is_unknown_to(process, other, uid)
                    && !inner.began_beside(other, name)
                    && !inner.began_beside(name, other)
                    && !inner.was_given_up(other)
                    && !inner.was_saved_beside(other, name)
                    && !inner.was_saved_unseen(other, name)
                    && !inner.began_before_forgery(process, name, other, uid)
            };
            others.iter().find(same).map(|other| format!("{name} beside {other} for {uid}"))
        });
        drop(inner);
        if let Some(what) = second {
            self.wrong(&format!("a second volume is made: {what}"));
        }
    }

    /// A driver starts to work for a caller who waits for so long.
    pub(crate) fn job_begins(
        &self,
        process: &str,
        host: Option<&str>,
        what: &str,
        patience: Duration,
    ) -> u64 {
        let mut inner = self.inner.lock();
        inner.jobs_so_far += 1;
        let (number, until) = (inner.jobs_so_far, Instant::now() + patience);
        let (process, host) = (process.to_owned(), host.unwrap_or_default().to_owned());
        inner.jobs.insert(number, Job { process, host, what: what.to_owned(), until });
        number
    }

    /// It has ended, or nobody waits for it by no fault of the caller's.
    pub(crate) fn job_ends(&self, number: u64) {
        self.inner.lock().jobs.remove(&number);
    }

    /// The driver's answer to a CreateVolume: nothing is open any more if there is nothing of it.
    pub(crate) fn create_ended(&self, name: &str, is_final: bool, nothing_left: bool) {
        let mut inner = self.inner.lock();
        let Some(calls) = inner.calls.get_mut(name) else { return };
        if is_final {
            calls.terminal_errors.push(Instant::now());
        } else {
            calls.terminal_errors.clear();
        }
        if nothing_left {
            (calls.open, calls.first, calls.awake, calls.since) = (None, None, None, 0);
            calls.senders.clear();
        }
    }

    /// The driver's answer to a CreateVolume which repeats none is one that is believed. Nobody asks again
    /// for what external-provisioner alone has left before.
    pub(crate) fn create_refused(&self, process: &str, name: &str) {
        if let Some(calls) = self.inner.lock().calls.get_mut(name) {
            calls.unfinished.remove(process);
            let mut senders = calls.senders.keys();
            let is_first = senders.all(|it| it == process || it.starts_with(EXTERNAL_PROVISIONER));
            if is_first && calls.abandoned == Some(Abandoned::ByOriginal) {
                calls.open = None;
            }
        }
    }

    /// A DeleteVolume of this handle reaches the driver, which holds a volume made then or none; gives
    /// the PersistentVolume that has it.
    pub(crate) fn delete_begins(
        &self,
        process: &str,
        host: Option<&str>,
        handle: &str,
        made: Option<Instant>,
    ) -> Option<String> {
        self.in_term(host, &format!("DeleteVolume {handle}"));
        // Read right before the call, but where the process stood still in between.
        let age = if self.watching.stood_still(process) { STALE } else { FRESH };
        let view = View { age, attachments: self.watching.shown_until(process) };
        let wrong = self.inner.lock().objections(process, handle, made, &view);
        for why in wrong {
            self.wrong(&format!("{process} deletes {handle}: {why}"));
        }
        self.inner.lock().owner(handle)
    }

    /// A driver has removed the volume of this handle, whatever it answers.
    pub(crate) fn emptied(&self, handle: &str) {
        self.inner.lock().emptied.insert(handle.to_owned(), Instant::now());
    }

    /// The driver has removed the volume, and answers the process so.
    pub(crate) fn removed(&self, handle: &str, removal: Removal) {
        self.inner.lock().removals.insert(handle.to_owned(), removal);
    }

    /// Whether the PersistentVolume was to be kept only once its volume was being removed, or once it
    /// was removed by a call that has failed.
    pub(crate) fn was_kept_too_late(&self, uid: &str) -> bool {
        let inner = self.inner.lock();
        let Some(volume) = inner.volumes.get(uid) else { return false };
        let removal = inner.removals.get(&volume.handle).map(|removal| removal.began);
        let removed = removal.or_else(|| inner.emptied.get(&volume.handle).copied());
        removed.is_some_and(|removed| volume.kept.is_none_or(|kept| removed < kept))
    }

    /// A process has ended: what it had open nobody knows of any more.
    pub(crate) fn ended(&self, process: &str, killed: bool) {
        let mut inner = self.inner.lock();
        let is_open = |(_, calls): &(&String, &CallsTruth)| calls.open.as_deref() == Some(process);
        let open: Vec<_> =
            inner.calls.iter().filter(is_open).map(|(name, _)| name.clone()).collect();
        for name in open {
            inner.abandon(process, &name, killed);
            if killed {
                inner.sends_no_more(process, &name, Instant::now());
            }
        }
        if killed {
            inner.killed.insert(process.to_owned());
        }
        inner.ended.insert(process.to_owned());
        inner.ends_jobs_of(process);
    }

    /// external-provisioner provisioner has ended so.
    pub(crate) fn ended_external_provisioner(&self, process: &str) {
        let mut inner = self.inner.lock();
        for calls in inner.calls.values_mut() {
            if calls.open.as_deref() == Some(process) {
                (calls.open, calls.abandoned) = (None, Some(Abandoned::ByOriginal));
            }
        }
        inner.ends_jobs_of(process);
    }

    /// A process gives the selected node of the claim back, on which a record may have named a volume.
    /// Of what others left open without a record it knows nothing; and where several claims share a
    /// name, nothing here says whose call it is.
    pub(crate) fn node_given_back(
        &self,
        process: &str,
        uid: &str,
        recorded: Option<&Recorded>,
        storage: &Storage,
    ) {
        let inner = self.inner.lock();
        // What a tenant has overwritten says nothing about its call.
        let recorded = recorded.filter(|_| !inner.tampered.contains(uid));
        let is_open = |(name, calls): &(&String, &CallsTruth)| {
            let known = |whose: &String| {
                whose == process || recorded.is_some_and(|record| record.is_for(name))
            };
            let mut jobs = inner.jobs.values();
            let running = jobs.any(|job| job.what == **name && known(&job.process));
            // Of a volume whose PersistentVolume has come and gone no call is open, whoever saved it.
            let made = calls.unfinished.keys().any(known)
                && storage.get(name).is_some()
                && !inner.was_saved_and_is_gone(name);
            // Three terminal errors in two minutes are believed (safety rule 3).
            let refused = calls.terminal_errors.len() >= 3
                && calls.terminal_errors.first().is_some_and(|first| first.elapsed() >= BELIEVED);
            let own = !refused && inner.sole_claim(name).is_some_and(|claim| claim == uid);
            let is_known = own && !inner.is_reported(name);
            is_known && calls.open.as_deref() == Some(process) && (running || made)
        };
        let open = inner.calls.iter().find(is_open).map(|(name, _)| name.clone());
        drop(inner);
        if let Some(name) = open {
            self.wrong(&format!("{process} gives the node of {name} back during a call"));
        }
    }

    /// Whether a process that has ended had asked for the removal of the volume, which came about when
    /// the next one had asked for the volume again.
    pub(crate) fn was_removed_late(&self, handle: &str) -> bool {
        self.inner.lock().removed_late.contains(handle)
    }

    /// A process removes the PersistentVolume with this UID.
    pub(crate) fn volume_removed(&self, process: &str, uid: &str) {
        let inner = self.inner.lock();
        let Some(volume) = inner.volumes.get(uid) else { return };
        let why = match inner.removals.get(&volume.handle) {
            Some(removal) if removal.volume.as_deref() == Some(uid) => None,
            // It shared the volume, and was due as well.
            Some(removal)
                if volume.created.is_some_and(|at| at <= removal.began)
                    && volume.kept.is_none_or(|at| at >= removal.began) =>
            {
                None
            }
            Some(_) => Some("whose predecessor's volume was deleted"),
            None => old(volume.kept).then_some("which is not Released to be deleted"),
        };
        let why = why.map(|why| format!("{process} removes {}, {why}", volume.name));
        drop(inner);
        if let Some(why) = why {
            self.wrong(&why);
        }
    }

    /// The PersistentVolume that was just saved must be of a volume that is there.
    pub(crate) fn saved(&self, process: &str, name: &str, handle: &str, alive: bool) {
        let mut inner = self.inner.lock();
        // Of claims that share a name, nothing here says whose calls that ends.
        let sole = inner.sole_claim(image_of(handle)).is_some();
        if let Some(calls) = inner.calls.get_mut(image_of(handle)) {
            calls.open = None;
            calls.unfinished.retain(|_, _| !sole);
        }
        // KNOWN: a driver's removal that outlasts its deadline and its process (646545): nobody can know of it.
        let removal = inner.removals.get(handle);
        let is_late = removal.is_some_and(|it| inner.ended.contains(&it.process));
        let by_another = inner.went_by_another_handle(handle);
        if !alive && is_late {
            inner.removed_late.insert(handle.to_owned());
        }
        drop(inner);
        if !alive && !is_late && !by_another {
            self.wrong(&format!(
                "{process} saves {name} of {handle}, which the driver does not have"
            ));
        }
    }

    /// Since when a process that runs since `start` works: with leader election since its term began.
    pub(crate) fn works_since(&self, host: Option<&str>, start: Instant) -> Instant {
        let inner = self.inner.lock();
        let term = inner.lease.as_ref().filter(|_| host.is_some()).map(|lease| lease.since);
        term.map_or(start, |term| term.max(start))
    }

    /// The names of all PersistentVolumes that have or had the handle, and of that which a volume with
    /// it is made for.
    pub(crate) fn names_of(&self, handle: &str) -> Vec<String> {
        let inner = self.inner.lock();
        let same = inner.volumes.values().filter(|volume| volume.handle == handle);
        let names =
            same.map(|volume| volume.name.clone()).chain([name_of(image_of(handle)).to_owned()]);
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether one leads, by the Lease.
    pub(crate) fn is_led(&self) -> bool {
        let inner = self.inner.lock();
        let led = |lease: &LeaseTruth| !lease.holder.is_empty() && lease.written.elapsed() <= TERM;
        inner.lease.as_ref().is_some_and(led)
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

/// Whether that was long enough ago for everybody to know.
fn old(at: Option<Instant>) -> bool {
    at.is_some_and(|at| at.elapsed() > STALE)
}

/// The text at a path; empty when there is none.
pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}
