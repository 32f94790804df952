//! What follows from what is known of a source: the decisions, each a pure function.

use std::collections::BTreeSet;

use super::{Call, Holders, Origin, Terminating, Worn};
use crate::source_protection::source::{NamedSource, SourceKind};

/// What is due for a source's finalizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::source_protection) enum Due {
    /// Nothing: it wears none that is ours to take off.
    Nothing,
    /// It stays: somebody needs the source.
    Keep,
    /// It goes, off the object with this UID.
    TakeOff(String),
    /// The same, unless a claim that this process has not seen yet names the source.
    TakeOffUnlessNamed(String),
    /// The same, unless a grant lets claims of these other namespaces use the source.
    TakeOffUnlessGranted(String, BTreeSet<String>),
    /// It goes although pending claims name the source: the time-out is over.
    Release(String),
}

impl Due {
    /// Whether there is something to do now.
    pub(in crate::source_protection) fn is_action(&self) -> bool {
        !matches!(self, Self::Nothing | Self::Keep)
    }
}

/// Which pending claims name a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::source_protection) enum NamedBy {
    /// None.
    Nobody,
    /// Only claims of these other namespaces: a grant of the source's namespace decides.
    OtherNamespaces(BTreeSet<String>),
    /// A claim of the source's own namespace.
    OwnNamespace,
}

impl NamedBy {
    /// The same, by the namespaces of the claims.
    pub(in crate::source_protection) fn of(
        namespaces: BTreeSet<String>,
        source: &NamedSource,
    ) -> Self {
        if namespaces.contains(&source.namespace) {
            Self::OwnNamespace
        } else if namespaces.is_empty() {
            Self::Nobody
        } else {
            Self::OtherNamespaces(namespaces)
        }
    }
}

impl Holders {
    /// Decides what is due for the source's finalizer.
    pub(in crate::source_protection) fn due(&self, source: &NamedSource) -> Due {
        if self.has_open_call(source) {
            return Due::Keep;
        }
        let named = self.named(source);
        let is_named = named != NamedBy::Nobody;
        let usual = match source.kind {
            SourceKind::Claim => self.due_for_claim(source, named),
            SourceKind::Snapshot => self.due_for_snapshot(source, named),
        };
        match self.overdue_uid(source) {
            Some(uid) if is_named && !matches!(usual, Due::TakeOff(_)) => Due::Release(uid.clone()),
            _ => usual,
        }
    }

    fn due_for_claim(&self, source: &NamedSource, named: NamedBy) -> Due {
        let Some(Terminating { uid, .. }) = self.leaving.get(source) else { return Due::Nothing };
        // The watch of claims shows those that name a source before the source's end.
        match named {
            NamedBy::OwnNamespace => Due::Keep,
            NamedBy::OtherNamespaces(namespaces) => {
                Due::TakeOffUnlessGranted(uid.clone(), namespaces)
            }
            // That its claim is gone is told later.
            NamedBy::Nobody if self.has_call(source) => Due::Keep,
            NamedBy::Nobody => Due::TakeOff(uid.clone()),
        }
    }

    fn due_for_snapshot(&self, source: &NamedSource, named: NamedBy) -> Due {
        let Some(Worn { uid, origin }) = self.worn_by(source) else { return Due::Nothing };
        let has_call = self.has_call(source);
        match named {
            _ if *origin == Origin::Ours && !self.peers && !has_call => Due::TakeOff(uid.clone()),
            NamedBy::OwnNamespace => Due::Keep,
            NamedBy::OtherNamespaces(namespaces) => {
                Due::TakeOffUnlessGranted(uid.clone(), namespaces)
            }
            // That its claim is gone is told later.
            NamedBy::Nobody if has_call => Due::Keep,
            NamedBy::Nobody => Due::TakeOffUnlessNamed(uid.clone()),
        }
    }

    /// Whether no call that was begun here and no claim of the source's namespace needs the source,
    /// which wears our finalizer: a crash may have left it. Claims of other namespaces may need it.
    pub(in crate::source_protection) fn is_orphan(&self, source: &NamedSource) -> bool {
        match self.named(source) {
            _ if self.has_open_call(source) => false,
            NamedBy::OwnNamespace => false,
            NamedBy::OtherNamespaces(_) => true,
            NamedBy::Nobody => !self.has_call(source),
        }
    }

    /// How many pending claims name the source.
    pub(in crate::source_protection) fn claims_of(&self, source: &NamedSource) -> usize {
        let namespaces = self.naming.get(source).into_iter().flatten();
        namespaces.map(|(_, claims)| claims.len()).sum()
    }

    /// Which pending claims name the source. One that has its volume needs no snapshot any more; it
    /// holds what it was cloned from until it is bound, as in the original.
    fn named(&self, source: &NamedSource) -> NamedBy {
        let needs = |uid: &String| {
            let closed = self.claims.get(uid).is_some_and(|kept| kept.closed);
            !closed || source.kind == SourceKind::Claim
        };
        let Some(namespaces) = self.naming.get(source) else { return NamedBy::Nobody };
        if namespaces.get(&source.namespace).is_some_and(|claims| claims.iter().any(needs)) {
            return NamedBy::OwnNamespace;
        }
        let others = namespaces.iter().filter(|(_, claims)| claims.iter().any(needs));
        NamedBy::of(others.map(|(namespace, _)| namespace.clone()).collect(), source)
    }

    /// Whether a restore or clone of the source was begun here that is open, or may be asked for
    /// again.
    fn has_call(&self, source: &NamedSource) -> bool {
        self.held.get(source).is_some_and(|held| !held.by.is_empty())
    }

    /// Whether a driver may be reading the source for a call of this process.
    fn has_open_call(&self, source: &NamedSource) -> bool {
        self.held.get(source).is_some_and(|held| held.by.values().any(|call| *call == Call::Open))
    }

    /// The object that wears our finalizer for what was begun here.
    fn worn_by(&self, source: &NamedSource) -> Option<&Worn> {
        self.held.get(source)?.worn.as_ref()
    }

    /// The UID of the source, where its time-out is over. Another object of its name may have come
    /// since.
    fn overdue_uid(&self, source: &NamedSource) -> Option<&String> {
        let uid = self.overdue.get(source)?;
        let is_it = match source.kind {
            SourceKind::Claim => self.leaving.get(source).is_some_and(|other| other.uid == *uid),
            SourceKind::Snapshot => self.worn_by(source).is_none_or(|worn| worn.uid == *uid),
        };
        is_it.then_some(uid)
    }

    pub(super) fn may_be_due(&self, source: &NamedSource) -> bool {
        self.due(source).is_action()
    }
}
