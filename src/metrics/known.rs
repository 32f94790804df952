//! Labels whose values are known in advance.
//!
//! Counters that alerts use have these labels. Each value is served from the start, with the count 0:
//! `increase()` ignores the first count of a series that begins with it.

use prometheus::IntCounterVec;

/// An enum of a label's values, with the list of all.
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

            /// The value in metrics.
            pub(super) fn label(self) -> &'static str {
                match self {
                    $(Self::$word => $label,)+
                }
            }

            /// Makes a counter serve each value from now on.
            pub(super) fn begin(counter: &IntCounterVec) {
                for word in Self::ALL {
                    counter.with_label_values(&[word.label()]);
                }
            }
        }
    };
}

words! {
    /// Why a volume may exist without a PersistentVolume (safety rule 14).
    SuspectedLeak {
        /// The claim is deleted, and the end of its call did not become known in time.
        ProtectionTimeout = "protection_timeout",
        /// The node whose process made the call is gone.
        NodeGone = "node_gone",
        /// The call of a deleted claim was closed by errors alone.
        ClosedByErrors = "closed_by_errors",
        /// The selected node was given back while a call for it was open.
        NodeGivenBack = "node_given_back",
        /// The claim has another volume.
        Superseded = "superseded",
        /// The topology that the call requested cannot be requested any more.
        Topology = "topology",
        /// The volume cannot be used and must not be deleted.
        Unusable = "unusable",
        /// Its PersistentVolume was deleted, and the claim does not request the volume again.
        LetGo = "let_go",
    }
}
