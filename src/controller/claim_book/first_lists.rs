//! What is not known of claims before all claims and all PersistentVolumes were listed once in our term.
//!
//! Owns which claims may have a PersistentVolume that nobody compared with them: the lists run at
//! the same time, and one may go past before its claim is known. Look-ups find it by its name, so
//! only claims are remembered whose PersistentVolume bears none of the names that are looked up.
//! Kept as hashes, and only until both lists are whole; two that share one cost a list.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use super::Doubt;
use crate::mutations::{self, Mutation};

/// How far the first lists are.
#[derive(Debug, Default)]
pub(super) struct FirstLists {
    claims: Progress,
    volumes: Progress,
    /// Claims, by UID, whose PersistentVolume went past under another name than theirs.
    named_otherwise: BTreeSet<u32>,
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
    /// A PersistentVolume for the claim `uid`, of which nothing is known, goes past under a name
    /// that look-ups do not try.
    pub(super) fn passes_unknown(&mut self, uid: &str) {
        let compared = !mutations::is_on(Mutation::VolumesListedFirst);
        if !self.are_whole() && compared {
            self.named_otherwise.insert(hash(uid));
        }
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

    /// It is whole.
    pub(super) fn volumes_whole(&mut self) {
        self.volumes.ends();
        self.tidy();
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

    fn are_whole(&self) -> bool {
        [self.claims, self.volumes] == [Progress::Whole; 2]
    }

    fn tidy(&mut self) {
        if self.are_whole() {
            self.named_otherwise = BTreeSet::new();
        }
    }
}

/// The same in every process; whoever aims at it makes us look, and no more.
fn hash(uid: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    (hasher.finish() >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_have_a_volume_of_another_name_is_told_apart_as_far_as_the_lists_are() {
        let mut lists = FirstLists::default();
        lists.passes_unknown("odd");
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
        lists.passes_unknown("odd");
        assert_eq!(
            lists.doubt("odd", false),
            Doubt::VolumeAndClaim,
            "what passes now was compared"
        );
        lists.volumes_restarted();
        assert_eq!(told(&lists), known, "a later list changes nothing");
    }
}
