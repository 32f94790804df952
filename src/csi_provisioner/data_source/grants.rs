//! Sources in other namespaces: whether those let them be used.
//!
//! Owns what a claim's user is told about it (reference 3.8). Promises that without a grant that
//! says so nothing of another namespace is used, and that a grant that cannot be read is none.
//! Leaves reading and judging the grants to `protection`, and whether other namespaces may be named
//! at all to the feature gate.

use super::Reference;
use crate::{
    controller::{dependencies::index::Dependency, provisioner::Failure},
    kube::{
        Client,
        objects::{Claim, ReferenceGrant, View as _},
    },
    source_protection::{Target, is_granted},
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
    let Reference { group, kind, namespace, name } = *source;
    let target = Target { group, kind, namespace, name };
    let from = |namespace: &str| namespace == claim.namespace();
    let granted = is_granted(client, from, &target).await.map_err(|error| {
        Failure::new(format!(
            "error getting ReferenceGrants in {namespace} namespace from api server: {error}"
        ))
    })?;
    if granted {
        return Ok(Grant::Stands);
    }
    let (own, claim) = (claim.namespace(), claim.name());
    let refused = format!(
        "accessing {namespace}/{name} of {kind} dataSource from {own}/{claim} isn't allowed"
    );
    let refused =
        Failure::new(refused).awaiting([Dependency::any_in::<ReferenceGrant>(namespace)]).lasting();
    Ok(Grant::Lacks(refused))
}

#[cfg(test)]
mod tests;
