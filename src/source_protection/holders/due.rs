//! Decisions about a source's finalizer, each a pure function.

use std::collections::BTreeSet;

use super::{Call, Finalized, FinalizerOrigin, Holders};
use crate::source_protection::source::{NamedSource, SourceKind};

/// What is due for a source's finalizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::source_protection) enum Due {
    /// Remove it from the object with this UID.
    Remove(String),
    /// Remove it, unless a grant lets claims of these other namespaces use the source, or it is another driver's.
    RemoveUnlessHeld(String, BTreeSet<String>),
}

impl Holders {
    /// Decides what is due for the source's finalizer: nothing if the source is needed, or has none of ours, and
    /// nothing while claims are listed, as a later page may show one that needs it.
    pub(in crate::source_protection) fn due(&self, source: &NamedSource) -> Option<Due> {
        if self.is_listing || self.has_open_call(source) {
            return None;
        }
        let has_call = self.has_call(source);
        let uid = match source.kind {
            // The watch delivers the claims that name a source before its deletion.
            SourceKind::Claim => &self.terminating.get(source)?.uid,
            SourceKind::Snapshot => match self.finalized.get(source)? {
                Finalized { uid, origin: FinalizerOrigin::Added, .. }
                    if !self.peers && !has_call =>
                {
                    return Some(Due::Remove(uid.clone()));
                }
                Finalized { uid, .. } => uid,
            },
        };
        // Looked up last: thousands of the claims that name it may have been served.
        let from = self.needed_from(source);
        // The end of the call will be reported later.
        let waits_for_call = from.is_empty() && has_call;
        let is_needed = from.contains(&source.namespace) || waits_for_call;
        (!is_needed).then(|| Due::RemoveUnlessHeld(uid.clone(), from))
    }

    /// Whether the object with this UID may lose our finalizer although claims name it: no call that was begun here
    /// is open, and it is not due anyway.
    pub(in crate::source_protection) fn may_be_released(
        &self,
        source: &NamedSource,
        uid: &str,
    ) -> bool {
        // Another object of its name may exist by now.
        let is_it = match source.kind {
            SourceKind::Claim => self.terminating.get(source).is_some_and(|it| it.uid == uid),
            SourceKind::Snapshot => self.finalized.get(source).is_none_or(|it| it.uid == uid),
        };
        is_it
            && !self.is_listing
            && !self.has_open_call(source)
            && !matches!(self.due(source), Some(Due::Remove(_)))
    }

    /// How many pending claims name the source.
    pub(in crate::source_protection) fn count_claims(&self, source: &NamedSource) -> usize {
        let namespaces = self.named_by.get(source).into_iter().flatten();
        namespaces.map(|(_, claims)| claims.len()).sum()
    }

    /// The namespaces of the pending claims that need the source; only its own if one of that does. A claim
    /// that has its volume needs no snapshot any more; it holds the claim that it was cloned from until it is
    /// bound, as in external-provisioner.
    fn needed_from(&self, source: &NamedSource) -> BTreeSet<String> {
        let needs = |uid: &String| {
            let finished = self.claims.get(uid).is_some_and(|entry| entry.finished);
            !finished || source.kind.is_claim()
        };
        let Some(namespaces) = self.named_by.get(source) else { return BTreeSet::new() };
        let own = &source.namespace;
        if namespaces.get(own).is_some_and(|claims| claims.iter().any(needs)) {
            return [own.clone()].into();
        }
        let needing = namespaces.iter().filter(|(_, claims)| claims.iter().any(needs));
        needing.map(|(namespace, _)| namespace.clone()).collect()
    }

    /// A restore or clone of the source that was begun here: an open one, if there is one.
    fn first_call(&self, source: &NamedSource) -> Option<Call> {
        let begin = (source.clone(), Call::Open, String::new());
        let (of, call, _) = self.called_for.range(begin..).next()?;
        (of == source).then_some(*call)
    }

    /// Whether a restore or clone of the source that was begun here is open, or may be tried again.
    pub(super) fn has_call(&self, source: &NamedSource) -> bool {
        self.first_call(source).is_some()
    }

    /// Whether a driver may be reading the source for a call of this process.
    fn has_open_call(&self, source: &NamedSource) -> bool {
        self.first_call(source) == Some(Call::Open)
    }

    pub(super) fn may_be_due(&self, source: &NamedSource) -> bool {
        self.due(source).is_some()
    }
}
