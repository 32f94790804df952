//! Which claims were born under this process's eyes, and so have no PersistentVolume yet.
//!
//! Owns the proof (safety rule 6). Where nobody else can have worked since this process began to
//! watch, that an event shows the claim first is one. With leader election it is none: the event may
//! have waited in a watch that stood still, while the leader before us served the claim. There the
//! version is one that all claims together had reached when we already led: a claim first seen in a later
//! one is younger. Until that is known, and for whatever is older, it says what is in doubt.
//!
//! Versions are compared among claims only, in which they grow with each write.

use super::{super::freshness::version_of, Doubt};
use crate::kube_api::views::Claim;

/// What proves that a claim was born under our eyes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Births {
    /// Nothing: this process only watches.
    #[default]
    Unseen,
    /// Its event does: nobody else works.
    Told,
    /// A version beyond this one, which all claims together had reached when we already led; while
    /// it is not known, nothing does.
    Beyond(Option<u64>),
}

impl Births {
    /// Whether this process works, or only watches.
    pub(super) fn is_working(self) -> bool {
        self != Self::Unseen
    }

    /// Whether a claim that an event shows, and nothing has shown before, was born under our eyes.
    pub(super) fn is_under_our_eyes(self, claim: &Claim) -> bool {
        match self {
            Self::Unseen => false,
            Self::Told => true,
            Self::Beyond(reached) => reached < version_of(&claim.metadata) && reached.is_some(),
        }
    }

    /// What is in doubt about a claim that was not. Where another process worked before us, news of
    /// it may have waited so long that it is something else by now.
    pub(super) fn doubt(self) -> Doubt {
        match self {
            Self::Unseen | Self::Told => Doubt::None,
            Self::Beyond(_) => Doubt::VolumeAndClaim,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(version: &str) -> Claim {
        serde_json::from_value(json!({"metadata": {"resourceVersion": version}})).unwrap()
    }

    #[test]
    fn after_another_leader_only_a_later_version_proves_a_birth() {
        let reached = Births::Beyond(Some(9));
        let table = [
            (Births::Unseen, "10", false),
            (Births::Told, "1", true),
            (Births::Told, "", true),
            (Births::Beyond(None), "10", false),
            (reached, "8", false),
            (reached, "9", false),
            (reached, "10", true),
            (reached, "100", true),
            (reached, "", false),
            (reached, "x", false),
        ];
        for (births, version, born) in table {
            assert_eq!(births.is_under_our_eyes(&claim(version)), born, "{births:?} {version:?}");
        }
    }
}
