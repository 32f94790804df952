//! Labels whose values are known in advance.
//!
//! Owns the words that counters with alerts are broken down by. Promises that each stands in its
//! type's list as soon as there is such a word, so that its counter is served, as 0, from the start:
//! `increase()` does not see a series that begins with its first count.

use prometheus::IntCounterVec;

/// An enum of words, with the list of all of them.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$what:meta])* $word:ident = $label:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$what])* $word,)+
        }

        impl $name {
            /// All of them.
            const ALL: &[Self] = &[$(Self::$word,)+];

            /// As metrics have it.
            pub(super) fn label(self) -> &'static str {
                match self {
                    $(Self::$word => $label,)+
                }
            }

            /// Has a counter serve each of them from now on.
            pub(super) fn begin(counter: &IntCounterVec) {
                for word in Self::ALL {
                    counter.with_label_values(&[word.label()]);
                }
            }
        }
    };
}

words! {
    /// Why a volume may exist that no PersistentVolume names (safety rule 14).
    SuspectedLeak {
        /// The claim is deleted, and how its call ended was not found out in time.
        ProtectionTimeout = "protection_timeout",
        /// The node whose process made the call is gone.
        NodeGone = "node_gone",
        /// The call of a deleted claim was closed by errors alone.
        ClosedByErrors = "closed_by_errors",
        /// The selected node was given back while a call for it was open.
        NodeGivenBack = "node_given_back",
        /// The claim has another volume.
        Superseded = "superseded",
        /// Where the volume was asked for cannot be asked for any more.
        Topology = "topology",
        /// The volume cannot be used, and may not be removed.
        Unusable = "unusable",
        /// Its PersistentVolume was deleted, and nobody asks for the volume again.
        LetGo = "let_go",
    }
}

words! {
    /// Which work panicked.
    Panicked {
        /// On a claim.
        Claims = "claims",
        /// On a volume.
        Volumes = "volumes",
        /// On a volume without its PersistentVolume.
        UnsavedVolumes = "unsavedpvs",
        /// On what volumes are made from.
        Sources = "sources",
        /// On an object of storage capacity.
        Capacity = "csistoragecapacity",
        /// On the segments that capacity is told of.
        Topology = "csitopology",
    }
}

words! {
    /// Which queue had lost what the audit found.
    Audited {
        /// That of claims.
        Claims = "claims",
        /// That of volumes.
        Volumes = "volumes",
        /// That of volumes without their PersistentVolumes.
        UnsavedVolumes = "unsavedpvs",
    }
}
