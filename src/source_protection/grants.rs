//! `ReferenceGrants`: whether a namespace lets claims of other namespaces use a source in it.
//!
//! Reads the grants of one namespace and evaluates them. What follows, also from a failed read, is
//! decided by the callers. Users write grants, and as many as they like: all claims share one list of a
//! namespace's grants ([`CoalescedReads`](crate::kube::CoalescedReads)), which keeps of them what is said
//! about claims, and fails where that is more than [`MAX_BYTES`].

use std::ops::ControlFlow;

use crate::kube::{
    ApiError, Client, ReadBy, Scope,
    objects::{ReferenceGrant, ReferenceGrantSpec, ReferenceGrantTo},
};

/// A source as grants name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantTarget<'a> {
    /// API group without version; empty for the core group.
    pub group: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Namespace.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
}

/// How much the grants of one namespace may say about claims: several of such lists can be in memory at once.
const MAX_BYTES: usize = 1 << 20;

/// The grants of one namespace that concern claims of others.
#[derive(Debug, Clone, Default)]
pub struct Grants {
    kept: Vec<ReferenceGrantSpec>,
    /// The size of their texts.
    bytes: usize,
}

impl ReadBy for Grants {
    /// Lists them; the name is not used.
    async fn read(client: &Client, namespace: Option<&str>, _name: &str) -> Result<Self, ApiError> {
        let mut grants = Self::default();
        // An invalid name of a namespace: there are no grants.
        let Ok(scope) = Scope::namespace(namespace.unwrap_or_default()) else { return Ok(grants) };
        let keep = |grant: ReferenceGrant| {
            grants.keep(grant.spec);
            if grants.is_too_large() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        client.list(&scope, keep).await?;
        if grants.is_too_large() {
            let about = "referencegrants for PersistentVolumeClaims".to_owned();
            return Err(ApiError::TooLarge { about, max: MAX_BYTES });
        }
        Ok(grants)
    }
}

impl Grants {
    /// Keeps what is said about claims.
    fn keep(&mut self, mut grant: ReferenceGrantSpec) {
        grant.from.retain(|from| from.group.is_empty() && from.kind == "PersistentVolumeClaim");
        if !grant.from.is_empty() {
            self.bytes += size(&grant);
            self.kept.push(grant);
        }
    }

    fn is_too_large(&self) -> bool {
        self.bytes > MAX_BYTES
    }

    /// Whether one of them lets claims of a namespace that `from` accepts use the source, which is in
    /// their namespace.
    pub fn allow(&self, from: impl Fn(&str) -> bool, source: &GrantTarget<'_>) -> bool {
        self.kept.iter().any(|grant| {
            let is_from = grant.from.iter().any(|allowed| from(&allowed.namespace));
            is_from && grant.to.iter().any(|allowed| names(allowed, source))
        })
    }
}

/// The bytes that the grant takes, about.
fn size(grant: &ReferenceGrantSpec) -> usize {
    let from = grant.from.iter().map(|it| it.kind.len() + it.namespace.len() + size_of_val(it));
    let name = |it: &ReferenceGrantTo| it.name.as_ref().map_or(0, String::len);
    let to = grant.to.iter().map(|it| it.group.len() + it.kind.len() + name(it) + size_of_val(it));
    from.chain(to).sum()
}

/// Whether `allowed` is the source, or all of its kind.
fn names(allowed: &ReferenceGrantTo, source: &GrantTarget<'_>) -> bool {
    let name = allowed.name.as_deref().unwrap_or_default();
    allowed.group == source.group
        && allowed.kind == source.kind
        && (name.is_empty() || name == source.name)
}

#[cfg(test)]
mod tests;
