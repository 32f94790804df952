//! Sources in other namespaces: whether those let them be used.
//!
//! Owns reading the `ReferenceGrants` of one namespace, for the one claim that needs them, and
//! judging them (reference 3.8). Promises that without a grant that says so nothing of another
//! namespace is used, and that a grant that cannot be read is none. Leaves whether other
//! namespaces may be named at all to the feature gate.

use std::ops::ControlFlow;

use super::Reference;
use crate::{
    controller::{awaited::Awaited, provisioner::Failure},
    kube_api::{
        ApiError, Client, Scope,
        views::{Claim, ReferenceGrant, View as _},
    },
};

/// Whether the source's namespace lets a claim use it.
#[derive(Debug)]
pub(super) enum Grant {
    /// It does.
    Stands,
    /// It does not, in the original's words.
    Lacks(Failure),
}

/// Checks whether the source's namespace lets the claim use it.
///
/// # Errors
/// That cannot be told.
pub(super) async fn check(
    client: &Client,
    claim: &Claim,
    source: &Reference<'_>,
) -> Result<Grant, Failure> {
    let granted = is_granted_in(client, claim, source).await.map_err(|error| {
        Failure::new(format!(
            "error getting ReferenceGrants in {} namespace from api server: {error}",
            source.namespace
        ))
    })?;
    if granted {
        return Ok(Grant::Stands);
    }
    let Reference { namespace, name, kind, .. } = source;
    let (own, claim) = (claim.namespace(), claim.name());
    let refused = format!(
        "accessing {namespace}/{name} of {kind} dataSource from {own}/{claim} isn't allowed"
    );
    let refused = Failure::new(refused).awaiting([Awaited::any_in::<ReferenceGrant>(namespace)]);
    Ok(Grant::Lacks(refused))
}

async fn is_granted_in(
    client: &Client,
    claim: &Claim,
    source: &Reference<'_>,
) -> Result<bool, ApiError> {
    // What cannot be a namespace's name holds no grant.
    let Ok(scope) = Scope::namespace(source.namespace) else { return Ok(false) };
    let mut granted = false;
    let look = |grant: ReferenceGrant| {
        granted = grants(&grant, claim.namespace(), source);
        if granted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    client.list(&scope, look).await?;
    Ok(granted)
}

/// Whether the grant, of the source's namespace, lets claims of the namespace `from` use it.
fn grants(grant: &ReferenceGrant, from: &str, source: &Reference<'_>) -> bool {
    let is_from = grant.spec.from.iter().any(|allowed| {
        allowed.group.is_empty()
            && allowed.kind == "PersistentVolumeClaim"
            && allowed.namespace == from
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
