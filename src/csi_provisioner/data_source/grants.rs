//! Sources in other namespaces: whether a ReferenceGrant allows their use.
//!
//! Returns the message for the claim's user. Without a grant nothing of another namespace is used, and
//! a grant that cannot be read does not count. Reading and evaluating grants belongs to
//! `source_protection`.

use super::SourceReference;
use crate::{
    controller::{dependencies::index::Dependency, provisioner::Failure},
    kube::{
        Client,
        objects::{Claim, ReferenceGrant, View as _},
    },
    source_protection::{GrantTarget, is_granted},
};

/// Whether a grant allows the claim to use the source.
#[derive(Debug)]
pub(super) enum Grant {
    /// It does.
    Allowed,
    /// It does not; in external-provisioner's words.
    Denied(Failure),
}

/// Checks whether the source's namespace allows the claim to use the source.
///
/// # Errors
/// The grants cannot be read.
pub(super) async fn check(
    client: &Client,
    claim: &Claim,
    source: &SourceReference<'_>,
) -> Result<Grant, Failure> {
    let SourceReference { group, kind, namespace, name } = *source;
    let target = GrantTarget { group, kind, namespace, name };
    let from = |namespace: &str| namespace == claim.namespace();
    let granted = is_granted(client, from, &target).await.map_err(|error| {
        Failure::new(format!(
            "error getting ReferenceGrants in {namespace} namespace from api server: {error}"
        ))
    })?;
    if granted {
        return Ok(Grant::Allowed);
    }
    let (own, claim) = (claim.namespace(), claim.name());
    let refused = format!(
        "accessing {namespace}/{name} of {kind} dataSource from {own}/{claim} isn't allowed"
    );
    let refused =
        Failure::new(refused).awaiting([Dependency::any_in::<ReferenceGrant>(namespace)]).lasting();
    Ok(Grant::Denied(refused))
}

#[cfg(test)]
mod tests;
