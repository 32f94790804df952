//! Decisions about a source's finalizer, each a pure function.

use std::collections::BTreeSet;

use super::{Call, Finalized, FinalizerOrigin, Holders, Terminating};
use crate::source_protection::source::{NamedSource, SourceKind};

/// What is due for a source's finalizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::source_protection) enum Due {
    /// Remove it from the object with this UID.
    Remove(String),
    /// Remove it, unless a claim that this process does not know yet names the source.
    RemoveUnlessNamed(String),
    /// Remove it, unless a grant lets claims of these other namespaces use the source.
    RemoveUnlessGranted(String, BTreeSet<String>),
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
    /// Classifies the namespaces of the claims that name `source`.
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
    /// Decides what is due for the source's finalizer: nothing if the source is needed, or has none of ours, and
    /// nothing while claims are listed, as a later page may show one that needs it.
    pub(in crate::source_protection) fn due(&self, source: &NamedSource) -> Option<Due> {
        if self.is_listing || self.has_open_call(source) {
            return None;
        }
        match source.kind {
            SourceKind::Claim => self.due_for_claim(source),
            SourceKind::Snapshot => self.due_for_snapshot(source),
        }
    }

    /// Whether only the names in pending claims keep the object with this UID, and no call that was begun here.
    pub(in crate::source_protection) fn is_kept_by_names(
        &self,
        source: &NamedSource,
        uid: &str,
    ) -> bool {
        // Another object of its name may exist by now.
        let is_it = match source.kind {
            SourceKind::Claim => self.terminating.get(source).is_some_and(|it| it.uid == uid),
            SourceKind::Snapshot => self.finalized_object(source).is_none_or(|it| it.uid == uid),
        };
        is_it
            && !self.has_open_call(source)
            && self.named_by(source) != NamedBy::Nobody
            && !matches!(self.due(source), Some(Due::Remove(_)))
    }

    fn due_for_claim(&self, source: &NamedSource) -> Option<Due> {
        let Terminating { uid, .. } = self.terminating.get(source)?;
        // The watch delivers the claims that name a source before its deletion.
        match self.named_by(source) {
            NamedBy::OwnNamespace => None,
            NamedBy::OtherNamespaces(namespaces) => {
                Some(Due::RemoveUnlessGranted(uid.clone(), namespaces))
            }
            // The end of the call will be reported later.
            NamedBy::Nobody if self.has_call(source) => None,
            NamedBy::Nobody => Some(Due::Remove(uid.clone())),
        }
    }

    fn due_for_snapshot(&self, source: &NamedSource) -> Option<Due> {
        let Finalized { uid, origin } = self.finalized_object(source)?;
        let has_call = self.has_call(source);
        if *origin == FinalizerOrigin::Added && !self.peers && !has_call {
            return Some(Due::Remove(uid.clone()));
        }
        // Who names it is looked up last: thousands of its claims may have been served.
        match self.named_by(source) {
            NamedBy::OwnNamespace => None,
            NamedBy::OtherNamespaces(namespaces) => {
                Some(Due::RemoveUnlessGranted(uid.clone(), namespaces))
            }
            // The end of the call will be reported later.
            NamedBy::Nobody if has_call => None,
            NamedBy::Nobody => Some(Due::RemoveUnlessNamed(uid.clone())),
        }
    }

    /// Whether no call that was begun here and no claim of the source's namespace needs the source,
    /// which has our finalizer: a crash may have left it. Claims of other namespaces may need it.
    pub(in crate::source_protection) fn is_orphan(&self, source: &NamedSource) -> bool {
        match self.named_by(source) {
            _ if self.has_open_call(source) => false,
            NamedBy::OwnNamespace => false,
            NamedBy::OtherNamespaces(_) => true,
            NamedBy::Nobody => !self.has_call(source),
        }
    }

    /// How many pending claims name the source.
    pub(in crate::source_protection) fn count_claims(&self, source: &NamedSource) -> usize {
        let namespaces = self.named_by.get(source).into_iter().flatten();
        namespaces.map(|(_, claims)| claims.len()).sum()
    }

    /// Which pending claims name the source. A claim that has its volume needs no snapshot any
    /// more; it holds the claim that it was cloned from until it is bound, as in
    /// external-provisioner.
    fn named_by(&self, source: &NamedSource) -> NamedBy {
        let needs = |uid: &String| {
            let finished = self.claims.get(uid).is_some_and(|entry| entry.finished);
            !finished || source.kind.is_claim()
        };
        let Some(namespaces) = self.named_by.get(source) else { return NamedBy::Nobody };
        if namespaces.get(&source.namespace).is_some_and(|claims| claims.iter().any(needs)) {
            return NamedBy::OwnNamespace;
        }
        let others = namespaces.iter().filter(|(_, claims)| claims.iter().any(needs));
        NamedBy::of(others.map(|(namespace, _)| namespace.clone()).collect(), source)
    }

    /// Whether a restore or clone of the source that was begun here is open, or may be tried again.
    fn has_call(&self, source: &NamedSource) -> bool {
        self.held.get(source).is_some_and(|held| !held.calls.is_empty())
    }

    /// Whether a driver may be reading the source for a call of this process.
    fn has_open_call(&self, source: &NamedSource) -> bool {
        self.held
            .get(source)
            .is_some_and(|held| held.calls.values().any(|call| *call == Call::Open))
    }

    /// The object that has our finalizer for calls that were begun here.
    fn finalized_object(&self, source: &NamedSource) -> Option<&Finalized> {
        self.held.get(source)?.finalized.as_ref()
    }

    pub(super) fn may_be_due(&self, source: &NamedSource) -> bool {
        self.due(source).is_some()
    }
}
