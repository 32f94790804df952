//! What is not known of claims before all claims and all PersistentVolumes were listed once in our term.
//!
//! Owns which claims may have a PersistentVolume that nobody compared with them: the lists run at
//! the same time, and one may go past before its claim is known. So whose went past, and under which
//! names, is remembered until both lists are whole; and apart from these the few whose name no look-up
//! tries. Kept as hashes: two that share one cost a look, or a list. A claim of which none of that is true
//! is compared with all PersistentVolumes that the list has shown.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use super::{super::marks::Marks, Doubt};
use crate::mutations::{self, Mutation};

/// How far the first lists are.
#[derive(Debug, Default)]
pub(super) struct FirstLists {
    claims: Progress,
    volumes: Progress,
    passed: Passed,
    /// Claims, by UID, whose PersistentVolume went past under another name than theirs.
    named_otherwise: BTreeSet<u32>,
}

/// What went past before it could be compared with every claim.
#[derive(Debug)]
enum Passed {
    /// The claims, by UID, of PersistentVolumes that went past before them, and the names of those of
    /// which their claim's UID does not tell it.
    Noted(Marks<u32>),
    /// Both lists are whole, and all of it is forgotten.
    Forgotten,
}

impl Default for Passed {
    fn default() -> Self {
        Self::Noted(Marks::default())
    }
}

/// A PersistentVolume that goes past, as far as claims are concerned that are not known yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passing<'a> {
    pub(super) name: &'a str,
    /// The UID of the claim that it is for; empty where it is for none.
    pub(super) claim: &'a str,
    /// Whether that claim is known.
    pub(super) is_known: bool,
    /// Whether its name is one that is looked up for that claim.
    pub(super) is_usual: bool,
}

/// How far the first list of a kind is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Progress {
    /// It has not begun; one that began before our term does not count.
    #[default]
    Awaited,
    /// Objects come.
    Begun,
    /// Everything was shown; later lists change nothing.
    Whole,
}

impl Progress {
    fn begins(&mut self) {
        if *self == Self::Awaited {
            *self = Self::Begun;
        }
    }

    fn ends(&mut self) {
        if *self == Self::Begun {
            *self = Self::Whole;
        }
    }
}

impl FirstLists {
    /// A PersistentVolume goes past.
    pub(super) fn passes(&mut self, volume: Passing<'_>) {
        let Passed::Noted(passed) = &mut self.passed else { return };
        if mutations::is_on(Mutation::VolumesListedFirst) {
            return;
        }
        if !volume.is_usual {
            passed.insert(hash(volume.name));
        }
        if volume.is_known || volume.claim.is_empty() {
            return;
        }
        passed.insert(hash(volume.claim));
        if !volume.is_usual {
            self.named_otherwise.insert(hash(volume.claim));
        }
    }

    /// The claim `uid` is known no longer, and has a PersistentVolume, of whatever name.
    pub(super) fn was_served(&mut self, uid: &str) {
        if let Passed::Noted(passed) = &mut self.passed {
            passed.insert(hash(uid));
            self.named_otherwise.insert(hash(uid));
        }
    }

    /// A PersistentVolume goes past that cannot be read: whose it is nobody knows.
    pub(super) fn passes_unread(&mut self, name: &str) {
        self.passes(Passing { name, claim: "", is_known: false, is_usual: false });
    }

    /// A list of all claims begins.
    pub(super) fn claims_restarted(&mut self) {
        self.claims.begins();
    }

    /// It is whole.
    pub(super) fn claims_whole(&mut self) {
        self.claims.ends();
        self.tidy();
    }

    /// A list of all PersistentVolumes begins.
    pub(super) fn volumes_restarted(&mut self) {
        self.volumes.begins();
    }

    /// It is whole. What was noted meanwhile is still known.
    pub(super) fn volumes_whole(&mut self) {
        self.volumes.ends();
    }

    /// What is in doubt about the claim `uid`, which is seen for the first time.
    pub(super) fn doubt(&self, uid: &str, born_under_our_eyes: bool) -> Doubt {
        match (born_under_our_eyes, self.volumes == Progress::Whole) {
            (false, false) => Doubt::Unlisted,
            _ if self.named_otherwise.contains(&hash(uid)) => Doubt::AnyVolume,
            (true, true) => Doubt::None,
            (true, false) => Doubt::Volume,
            (false, true) => Doubt::VolumeAndClaim,
        }
    }

    /// Whether the claim `uid`, which is known from now on, is compared with all PersistentVolumes that
    /// the list has shown: none is for it, or bears a name that is looked up for it, which is the
    /// usual one or this.
    pub(super) fn has_compared(&self, uid: &str, name: &str) -> bool {
        let Passed::Noted(passed) = &self.passed else { return false };
        let usual = usual_name(uid);
        let is_noted = |text: &str| passed.contains(hash(text));
        self.volumes == Progress::Whole && ![uid, name, &usual].into_iter().any(is_noted)
    }

    /// Forgets what nobody needs once both lists are whole.
    pub(super) fn tidy(&mut self) {
        if [self.claims, self.volumes] == [Progress::Whole; 2] {
            (self.passed, self.named_otherwise) = (Passed::Forgotten, BTreeSet::new());
        }
    }
}

/// How a claim's PersistentVolume is called where no prefix was given.
pub(in crate::controller) fn usual_name(uid: &str) -> String {
    format!("pvc-{uid}")
}

/// The same in every process; whoever aims at it makes us look, and no more.
fn hash(text: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    (hasher.finish() >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For nobody who is known, under a name that no look-up tries.
    fn passing<'a>(name: &'a str, claim: &'a str) -> Passing<'a> {
        Passing { name, claim, is_known: false, is_usual: false }
    }

    #[test]
    fn who_may_have_a_volume_of_another_name_is_told_apart_as_far_as_the_lists_are() {
        let mut lists = FirstLists::default();
        lists.passes(passing("tank-1", "odd"));
        let told = |lists: &FirstLists| {
            [("odd", false), ("stood", false), ("born", true)]
                .map(|(uid, born)| lists.doubt(uid, born))
        };
        lists.volumes_whole();
        assert_eq!(told(&lists), [Doubt::Unlisted, Doubt::Unlisted, Doubt::Volume], "none begun");
        lists.volumes_restarted();
        assert_eq!(told(&lists), [Doubt::Unlisted, Doubt::Unlisted, Doubt::Volume]);
        assert_eq!(lists.doubt("odd", true), Doubt::AnyVolume);
        lists.volumes_whole();
        assert_eq!(told(&lists), [Doubt::AnyVolume, Doubt::VolumeAndClaim, Doubt::None]);
        lists.claims_restarted();
        lists.claims_whole();
        let known = [Doubt::VolumeAndClaim, Doubt::VolumeAndClaim, Doubt::None];
        assert_eq!(told(&lists), known, "nothing is kept");
        lists.passes(passing("tank-2", "odd"));
        assert_eq!(
            lists.doubt("odd", false),
            Doubt::VolumeAndClaim,
            "what passes now was compared"
        );
        lists.volumes_restarted();
        assert_eq!(told(&lists), known, "a later list changes nothing");
    }

    /// A claim is compared once the list of PersistentVolumes is whole, unless one went past before it that
    /// is for it or bears a name that is looked up for it; later claims never are.
    #[test]
    fn a_claim_is_compared_with_all_that_went_past_before_it() {
        let mut lists = FirstLists::default();
        lists.volumes_restarted();
        lists.claims_restarted();
        lists.passes(Passing { is_usual: true, ..passing("pvc-own", "own") });
        lists.passes(passing("odd", "odder"));
        lists.passes(passing("pvc-taken", "somebody"));
        lists.passes(passing("static-taken-too", ""));
        lists.passes_unread("pvc-unread");
        lists.passes(Passing { is_known: true, is_usual: true, ..passing("pvc-known", "known") });
        assert!(!lists.has_compared("free", "pvc-free"), "more may come");
        lists.volumes_whole();
        let compared = |uid: &str| lists.has_compared(uid, &format!("static-{uid}"));
        assert!(compared("free") && compared("known"), "one that was known was compared directly");
        for uid in ["own", "odder", "somebody", "taken", "taken-too", "unread"] {
            assert!(!compared(uid), "{uid}");
        }
        lists.claims_whole();
        assert!(!lists.has_compared("free", "pvc-free"), "nothing is kept");
    }
}
