//! What the ledger's record says of a call or a deletion: who may have had a volume, and why one must
//! not go. Only reads.

use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

use tokio::time::Instant;

use super::{
    Abandoned, CallsTruth, FRESH, Inner, STALE, UNSEEN, VolumeTruth, image_of, may_be_of, name_of,
    node_of,
};

/// What a process that deletes a volume can know.
pub(super) struct View {
    /// The greatest age of its read of the PersistentVolume.
    pub age: Duration,
    /// Until when attachments were shown to it; none: to this day.
    pub attachments: Option<Instant>,
}

impl Inner {
    /// The PersistentVolumes' names if each of the claims that the name may stand for had its own
    /// and was bound to it. What was gone before who works now listed what there is counts only
    /// where the claim itself says so: it names its volume for ever. Known is what was so until
    /// `known`. What another node has created says nothing about what a call has left on this one.
    pub(super) fn all_had(&self, name: &str, since: Instant, known: Instant) -> Option<String> {
        let old = |at: Option<Instant>| at.is_some_and(|at| at < known);
        let had = |uid: &&String| {
            self.volumes.values().find(|volume| {
                volume.claim == **uid
                    && !volume.by_hand
                    && may_be_of(image_of(&volume.handle), uid)
                    && node_of(image_of(&volume.handle)) == node_of(name)
                    && old(volume.bound)
                    && (volume.gone.is_none()
                        || volume.bound > Some(since)
                        || old(self.named.get(*uid).map(|(since, _)| *since)))
            })
        };
        let mut names = Vec::new();
        for uid in self.claims.keys().filter(|uid| may_be_of(name, uid)) {
            names.push(had(&uid)?.name.clone());
        }
        (!names.is_empty()).then(|| names.join(" and "))
    }

    /// The time between the two in which quota would not have refused a record.
    pub(super) fn recordable(&self, from: Instant, to: Instant) -> Duration {
        let refused = |(start, end): &(Instant, Instant)| {
            (*end).min(to).saturating_duration_since((*start).max(from))
        };
        let refused: Duration = self.used_up.iter().map(refused).sum();
        to.saturating_duration_since(from).saturating_sub(refused)
    }

    /// The one claim that the volume's name stands for.
    pub(super) fn sole_claim(&self, name: &str) -> Option<&String> {
        let mut claims = self.claims.keys().filter(|uid| may_be_of(name, uid));
        claims.next().filter(|_| claims.next().is_none())
    }

    /// Whether nobody may know of this volume, by no fault or as was said.
    pub(super) fn is_left(&self, name: &str) -> bool {
        self.calls.get(name).is_some_and(|calls| calls.abandoned.is_some())
            || self.is_reported(name)
    }

    /// Whether the program has said that this volume may be left behind: by its name or handle, or as that
    /// of a record which it does not follow, under whatever prefix.
    pub(super) fn is_reported(&self, name: &str) -> bool {
        let same_claim = |uid: &String| {
            may_be_of(name, uid) && self.unfollowed.iter().any(|volume| may_be_of(volume, uid))
        };
        let names = |report: &String| report.contains(name) || report.contains(name_of(name));
        self.suspects.iter().any(names) || self.claims.keys().any(same_claim)
    }

    /// Whether nothing shows the process the call for this volume: that of another one, which is
    /// held up in it, and whose prefix this one does not know. With a record of it on the claim it
    /// does; that of this process's own call under another name shows nothing.
    pub(super) fn is_unknown_to(&self, process: &str, name: &str, claim: &str) -> bool {
        let asks = self.calls.get(name).and_then(|calls| calls.open.as_deref());
        // The claim is read before the call, and the answer takes its time.
        let is_recorded = self
            .recorded
            .get(claim)
            .is_some_and(|(since, record)| record.is_for(name) && since.elapsed() > STALE);
        asks.is_some_and(|other| other != process) && !is_recorded
    }

    /// Whether the process's call for the volume began before any for the other one, whose record a tenant
    /// may have written: a process repeats its own open call, whatever such a record says.
    pub(super) fn began_before_forgery(
        &self,
        process: &str,
        name: &str,
        other: &str,
        claim: &str,
    ) -> bool {
        let own = self.calls.get(name).and_then(|calls| calls.unfinished.get(process));
        let others = self.calls.get(other).and_then(|calls| calls.first);
        self.tampered.contains(claim) && own < others.as_ref() && own.is_some()
    }

    /// Whether the volume of this handle was removed by another handle, which somebody gave a
    /// PersistentVolume by hand.
    pub(super) fn went_by_another_handle(&self, handle: &str) -> bool {
        let other = |volume: &VolumeTruth| {
            volume.by_hand
                && volume.handle != handle
                && image_of(&volume.handle) == image_of(handle)
                && self.removals.contains_key(&volume.handle)
        };
        self.volumes.values().any(other)
    }

    /// The names under which calls that nothing shows the process are under way for the claim of
    /// this volume.
    pub(super) fn unknown_beside(&self, process: &str, name: &str) -> BTreeSet<String> {
        let Some(claim) = self.sole_claim(name) else { return BTreeSet::new() };
        let is_unknown = |other: &&String| {
            *other != name
                && self.sole_claim(other) == Some(claim)
                && self.is_unknown_to(process, other, claim)
        };
        self.calls.keys().filter(is_unknown).cloned().collect()
    }

    /// Whether a call for the volume began while one for the other was under way, and nothing showed it.
    pub(super) fn began_beside(&self, name: &str, other: &str) -> bool {
        self.calls.get(name).is_some_and(|calls| calls.beside.contains(other))
    }

    /// Whether an ended process left a recorded call for this claim open, or `process` has not finished
    /// one, the claim never got a PersistentVolume, and another one has one of the name. A recorded call
    /// that never reached the driver is open all the same: nobody knows that it was lost.
    pub(super) fn waits_behind_another(&self, uid: &str, process: &str) -> bool {
        let is_known = self.ever_recorded.contains(uid);
        let followed = |(_, calls): &(&String, &CallsTruth)| {
            is_known && calls.abandoned.is_some() || calls.unfinished.contains_key(process)
        };
        let mut names = self.calls.iter().filter(followed).map(|(name, _)| name);
        let is_taken = |name: &String| {
            self.volumes
                .values()
                .any(|volume| volume.name == name_of(name) && volume.gone.is_none())
        };
        // One made by hand says nothing of the call, nor does one from a backup that has come and gone
        // during the call.
        let is_own = |volume: &VolumeTruth| {
            let came_and_went = volume.by_hand && volume.gone.is_some();
            let is_named = volume.provisioned || may_be_of(&volume.name, uid);
            volume.claim == uid && is_named && !came_and_went
        };
        let is_in_the_way = |volume: &VolumeTruth| {
            volume.claim != uid && volume.gone.is_none() && may_be_of(&volume.name, uid)
        };
        !self.volumes.values().any(is_own)
            && (names.any(|name| may_be_of(name, uid) && is_taken(name))
                || is_known && self.volumes.values().any(is_in_the_way))
    }

    /// Whether a driver works on this volume for somebody who leads no longer.
    pub(super) fn is_overtaken(&self, name: &str) -> bool {
        let leads = |host: &str| self.lease.as_ref().is_none_or(|lease| lease.holder == host);
        let mut jobs = self.jobs.values().filter(|job| job.what == name && !job.host.is_empty());
        jobs.any(|job| !leads(&job.host))
    }

    pub(super) fn was_given_up(&self, image: &str) -> bool {
        let mut volumes = self.volumes.values().filter(|volume| image_of(&volume.handle) == image);
        volumes.any(|volume| volume.gone.is_some() && (volume.stripped || volume.kept.is_some()))
    }

    /// Whether a PersistentVolume of this image was there, and is gone.
    pub(super) fn was_saved_and_is_gone(&self, image: &str) -> bool {
        let mut volumes = self.volumes.values().filter(|volume| image_of(&volume.handle) == image);
        volumes.any(|volume| volume.gone.is_some())
    }

    /// Whether the volume was saved when the first call for the other had begun, or so shortly before that
    /// its sender need not have been shown it, or stood still since.
    pub(super) fn was_saved_beside(&self, image: &str, other: &str) -> bool {
        let Some(known) = self.calls.get(other).and_then(|calls| calls.awake) else { return false };
        let mut volumes = self.volumes.values().filter(|volume| image_of(&volume.handle) == image);
        volumes.any(|volume| volume.created.is_some_and(|created| created > known))
    }

    /// Whether the volume was saved under a name that no process looks up but by a list, and no watch had
    /// shown it to the sender of the last call for the other.
    pub(super) fn was_saved_unseen(&self, image: &str, other: &str) -> bool {
        let Some(shown) = self.calls.get(other).and_then(|calls| calls.shown) else { return false };
        let mut volumes = self.volumes.values().filter(|volume| image_of(&volume.handle) == image);
        !image.starts_with("pvc-")
            && volumes.any(|volume| volume.created.is_some_and(|created| created > shown))
    }

    /// The PersistentVolume that has the handle now; of several, one whose volume may be deleted.
    pub(super) fn owner(&self, handle: &str) -> Option<String> {
        let has_it = |(_, volume): &(&String, &VolumeTruth)| {
            volume.handle == handle && volume.gone.is_none()
        };
        let owners = self.volumes.iter().filter(has_it);
        owners.min_by_key(|(_, volume)| volume.kept.is_some()).map(|(uid, _)| uid.clone())
    }

    /// Why the volume, made then, must not be deleted now by whoever has this view.
    pub(super) fn objections(
        &self,
        process: &str,
        handle: &str,
        made: Option<Instant>,
        view: &View,
    ) -> Vec<String> {
        let old = |at: Option<Instant>| at.is_some_and(|at| at.elapsed() > view.age);
        let same = || self.volumes.values().filter(|volume| volume.handle == handle);
        let standing: Vec<_> = same().filter(|volume| volume.gone.is_none()).collect();
        let mut why = Vec::new();
        let known = |volume: &&&VolumeTruth| volume.created.is_some_and(|at| at.elapsed() > UNSEEN);
        let owner = self.owner(handle);
        // The one that is deleted was read; others of its handle are known only by a watch. All that are
        // known must be due.
        let read = owner.as_ref().and_then(|uid| self.volumes.get(uid)).map(|it| &it.name);
        let is_reported = |volume: &&&VolumeTruth| read == Some(&volume.name) || known(volume);
        for volume in standing.iter().filter(is_reported).filter(|volume| old(volume.kept)) {
            why.push(format!("{} is not Released with the policy Delete", volume.name));
        }
        let sole = self.sole_claim(image_of(handle)).is_some();
        // Of claims whose names are cut to the same text, one's volume can be made when another's has
        // gone; and what people took from one, the driver returns to the other as its own.
        let had_it = |volume: &VolumeTruth| made.map_or(sole, |made| volume.gone >= Some(made));
        let mut lost = same()
            .filter(|volume| volume.bound.is_some() && old(volume.gone))
            .filter(|volume| sole || !volume.stripped);
        // Whoever has read it a moment ago may still go by that.
        let went_just_now =
            |volume: &VolumeTruth| volume.gone.is_some() && !old(volume.gone) && !old(volume.kept);
        if standing.is_empty() && !same().any(went_just_now) && lost.any(had_it) {
            why.push("its PersistentVolume was bound and is gone".to_owned());
        }
        let is_shown = |since: &Instant| {
            let shown = view.attachments.is_none_or(|until| *since + STALE < until);
            shown && since.elapsed() > UNSEEN / 10
        };
        let attached =
            |volume: &&&VolumeTruth| self.attached.get(&volume.name).is_some_and(is_shown);
        for volume in standing.iter().filter(attached) {
            why.push(format!("{} is attached", volume.name));
        }
        // What came back just before the call had another UID when the process last read it.
        let was_read = |began: Instant| {
            let created = owner.as_ref().and_then(|uid| self.volumes[uid].created);
            created.is_none_or(|created| began.saturating_duration_since(created) > FRESH)
        };
        if let Some(removal) = self.removals.get(handle)
            && removal.process == process
            && removal.answered
            && removal.volume.is_some()
            && removal.volume == owner
            && was_read(removal.began)
        {
            why.push("it was answered that this is done".to_owned());
        }
        why
    }
}

impl Inner {
    /// The process has the volume's call open, and nobody will know of that any more.
    pub(super) fn abandon(&mut self, process: &str, name: &str, killed: bool) {
        let recorded = self
            .recorded
            .iter()
            .any(|(uid, (_, record))| may_be_of(name, uid) && record.is_for(name));
        let Some(calls) = self.calls.get(name) else { return };
        let after = calls.first.map(|first| self.recordable(first, Instant::now()));
        let how = match calls.since {
            _ if recorded => Abandoned::Otherwise,
            1 if killed => Abandoned::InFirstCall,
            _ => Abandoned::Unrecorded { killed, after: after.unwrap_or(Duration::MAX) },
        };
        if let Some(calls) = self.calls.get_mut(name) {
            (calls.open, calls.abandoned) = (None, Some(how));
        }
        let _ = writeln!(self.lines, "          {process} leaves {name} open");
    }

    /// From then on the process cannot record its call for the volume.
    pub(super) fn sends_no_more(&mut self, process: &str, name: &str, then: Instant) {
        let calls = self.calls.get_mut(name);
        if let Some(sender) = calls.and_then(|calls| calls.senders.get_mut(process)) {
            sender.until.get_or_insert(then);
        }
    }

    /// The process has ended: the next of its identity knows nothing of what its driver goes on with.
    pub(super) fn ends_jobs_of(&mut self, process: &str) {
        for job in self.jobs.values_mut().filter(|job| job.process == process) {
            job.host.clear();
        }
    }
}
