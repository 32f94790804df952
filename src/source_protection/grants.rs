//! `ReferenceGrants`: whether a namespace lets claims of other namespaces use a source in it.
//!
//! Reads the grants of one namespace and evaluates them. What follows, also from a failed read, is
//! decided by the callers.

use std::ops::ControlFlow;

use crate::kube::{ApiError, Client, Scope, objects::ReferenceGrant};

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

/// Whether a grant in the source's namespace lets claims of a namespace that `from` accepts use the
/// source. Reads the grants live.
///
/// # Errors
/// The grants cannot be read.
pub async fn is_granted(
    client: &Client,
    from: impl Fn(&str) -> bool,
    source: &GrantTarget<'_>,
) -> Result<bool, ApiError> {
    // An invalid name of a namespace: there are no grants.
    let Ok(scope) = Scope::namespace(source.namespace) else { return Ok(false) };
    let mut granted = false;
    let look = |grant: ReferenceGrant| {
        granted = grants(&grant, &from, source);
        if granted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    client.list(&scope, look).await?;
    Ok(granted)
}

/// Whether the grant, of the source's namespace, lets claims of a namespace that `from` accepts use
/// the source.
fn grants(grant: &ReferenceGrant, from: impl Fn(&str) -> bool, source: &GrantTarget<'_>) -> bool {
    let is_from = grant.spec.from.iter().any(|allowed| {
        allowed.group.is_empty()
            && allowed.kind == "PersistentVolumeClaim"
            && from(&allowed.namespace)
    });
    let is_to = grant.spec.to.iter().any(|allowed| {
        let name = allowed.name.as_deref().unwrap_or_default();
        allowed.group == source.group
            && allowed.kind == source.kind
            && (name.is_empty() || name == source.name)
    });
    is_from && is_to
}

#[cfg(test)]
mod tests;
