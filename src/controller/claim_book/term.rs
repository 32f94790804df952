//! Whether this process works, and whether what the watch of claims shows is younger than that.
//!
//! Owns what makes a claim one that was born under our eyes (safety rule 6): an event that shows it
//! first, on a watch that began when nobody else could work any more. With leader election an event of
//! an older watch proves nothing: it may have waited there while the leader before us served the
//! claim. Leaves asking for a new list, which begins a new watch, to the controller.

/// Whose the work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Term {
    /// Another process's, perhaps: this one only watches.
    #[default]
    Others,
    /// Ours, but the watch of claims is older than that: nothing of it is believed.
    TakenOver,
    /// Ours, and was when the watch of claims began.
    Ours,
}

impl Term {
    /// A new list of claims begins, and a new watch with it.
    pub(super) fn claims_restarted(&mut self) {
        if *self == Self::TakenOver {
            *self = Self::Ours;
        }
    }
}
