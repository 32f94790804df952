//! The source of a volume that is not created empty.
//!
//! `identify` determines which source the claim names, whether the claim may use it, and whether this
//! program copies that kind or a populator fills the volume. Without a ReferenceGrant nothing of
//! another namespace is used, and a grant that cannot be read does not count.
//! `resolve` finds the source and checks its state (`snapshot`, `clone`). A claim that names a
//! source never gets an empty volume. A failure names the objects whose change may resolve it.
//! Whether the claim may use its source is checked at each attempt. Keeping a source while the
//! driver reads it belongs to `source_protection`.

mod clone;
mod snapshot;
mod status_text;

use go_fmt::quantity::Quantity;

use super::{ProvisionerSettings, reads::Reads};
use crate::{
    controller::{
        dependencies::Dependency,
        model::source::{NamedSource, Source, SourceKind},
        provisioner::{Failure, NotPrepared, ProvisionRequest},
    },
    csi::proto::{VolumeContentSource, volume_content_source as content},
    kube::objects::{Claim, MAX_NAME, ReferenceGrant, View as _},
    source_protection::{GrantTarget, SNAPSHOT_GROUP},
};

/// A source of a kind that this program copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copyable {
    pub(super) source: NamedSource,
    /// Whether the claim has lost access to it: an open call is continued, but its volume is
    /// discarded.
    pub(super) access_revoked: bool,
    /// The UID of the source, if the claim is known to have come after the deletion of that.
    pub(super) late_for: Option<String>,
}

/// The source that the claim names; `None` for an empty volume.
///
/// # Errors
/// The claim may not use it, or this program does not copy that kind.
pub(super) async fn identify(
    reads: &Reads,
    settings: &ProvisionerSettings,
    request: &ProvisionRequest,
) -> Result<Option<Copyable>, NotPrepared> {
    let claim = &*request.claim;
    let Some(target) = target(claim, settings.gates.cross_namespace_volume_data_source)? else {
        return Ok(None);
    };
    let other_namespace = target.namespace != claim.namespace();
    let access_revoked = other_namespace && access_revoked(reads, request, &target).await?;
    Ok(Some(Copyable { source: named(claim, target)?, access_revoked, late_for: None }))
}

/// A failure that lasts until the claim or a dependency changes.
fn refused(why: String) -> Failure {
    Failure::new(why).finished().lasting()
}

/// Whether the claim has lost access to the source in another namespace, while its open call is
/// continued because its volume will be discarded.
///
/// # Errors
/// No grant allows the claim to use the source, or the grants can't be read. In
/// external-provisioner's words.
async fn access_revoked(
    reads: &Reads,
    request: &ProvisionRequest,
    target: &GrantTarget<'_>,
) -> Result<bool, Failure> {
    let GrantTarget { kind, namespace, name, .. } = *target;
    let (own, claim) = (request.claim.namespace(), request.claim.name());
    let grants = reads.grants.get(Some(namespace), "").await.map_err(|error| {
        Failure::new(format!(
            "error getting ReferenceGrants in {namespace} namespace from api server: {error}"
        ))
        .finished()
    })?;
    let granted = grants.allow(|from| from == own, target);
    if granted {
        // One that is taken back counts at once: only refusals are shared.
        reads.grants.forget(Some(namespace), "");
    }
    let continues_open_call = request.withdrawn && request.source.is_some();
    if granted || continues_open_call {
        return Ok(!granted);
    }
    let refusal = refused(format!(
        "accessing {namespace}/{name} of {kind} dataSource from {own}/{claim} isn't allowed"
    ));
    Err(refusal.awaiting([Dependency::any_in::<ReferenceGrant>(namespace)]))
}

/// The claim's source as its spec names it.
fn target(claim: &Claim, cross_namespace: bool) -> Result<Option<GrantTarget<'_>>, Failure> {
    let own = claim.namespace();
    let (named, namespace) = match (&claim.spec.data_source, &claim.spec.data_source_ref) {
        (Some(source), _) => (source, own),
        (None, Some(source)) => {
            let namespace = source.namespace.as_deref().filter(|namespace| !namespace.is_empty());
            if namespace.is_some() && !cross_namespace {
                return Err(refused(
                    "dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is disabled".to_owned(),
                ));
            }
            (source, namespace.unwrap_or(own))
        }
        (None, None) => return Ok(None),
    };
    let group = named.api_group.as_deref().unwrap_or_default();
    let (kind, name) = (named.kind.as_str(), named.name.as_str());
    if [group, kind, namespace, name].iter().any(|text| text.len() > MAX_NAME) {
        return Err(refused(format!(
            "the dataSource of PVC {} has a text of more than {MAX_NAME} bytes, which no object's name or kind has",
            claim.name()
        )));
    }
    Ok(Some(GrantTarget { group, kind, namespace, name }))
}

/// Separates the kinds that this program copies from those of populators.
fn named(claim: &Claim, target: GrantTarget<'_>) -> Result<NamedSource, NotPrepared> {
    let GrantTarget { group, kind, namespace, name } = target;
    if name.is_empty() {
        return Err(refused(format!("the PVC source not found for PVC {}", claim.name())).into());
    }
    let kind = match (kind, group) {
        ("VolumeSnapshot", SNAPSHOT_GROUP) => SourceKind::Snapshot,
        ("VolumeSnapshot", _) => {
            return Err(refused(format!(
                "the PVC source does not belong to the right APIGroup. Expected {SNAPSHOT_GROUP}, Got {group}"
            ))
            .into());
        }
        ("PersistentVolumeClaim", "") => SourceKind::Claim,
        (kind, _) => return Err(left_to_populator(kind)),
    };
    Ok(NamedSource { kind, namespace: namespace.to_owned(), name: name.to_owned() })
}

/// A populator creates volumes from sources of this kind.
fn left_to_populator(kind: &str) -> NotPrepared {
    let reason = format!(
        "data source ({kind}) is not handled by the provisioner, assuming an external populator will provision it"
    );
    NotPrepared::Ignored { kind: kind.to_owned(), reason }
}

/// Finds the source and checks its state. `size` is what the claim requests.
///
/// A call that this process has open is repeated with the same source: its object may be gone or
/// changed by now, and the driver may have created the volume.
///
/// # Errors
/// In external-provisioner's words.
pub(super) async fn resolve(
    reads: &Reads,
    settings: &ProvisionerSettings,
    request: &ProvisionRequest,
    size: &Quantity,
    named: &Copyable,
) -> Result<Source, Failure> {
    if let Some(source) = &request.source {
        return Ok(source.clone());
    }
    let Copyable { source: named, late_for, .. } = named;
    let query = SourceQuery { settings, request, size, named, late_for: late_for.as_deref() };
    let found = match named.kind {
        SourceKind::Snapshot => snapshot::find(reads, &query).await,
        SourceKind::Claim => clone::find(reads, &query).await,
    };
    found.map_err(|failure| user_error(named, failure))
}

/// What a source is checked against.
struct SourceQuery<'a> {
    settings: &'a ProvisionerSettings,
    request: &'a ProvisionRequest,
    /// The size that the claim requests.
    size: &'a Quantity,
    named: &'a NamedSource,
    /// The UID of the source, if the claim is known to have come after the deletion of that.
    late_for: Option<&'a str>,
}

/// A size for comparison with a source. A size that overflows counts as zero, as in
/// external-provisioner and in the request.
fn bytes(size: &Quantity) -> i64 {
    size.checked_value().unwrap_or(0)
}

/// Adds the text that users see to the failure.
fn user_error(named: &NamedSource, failure: Failure) -> Failure {
    let (kind, name) = (named.kind.name(), &named.name);
    failure.prefixed(&format!("error getting handle for DataSource Type {kind} by Name {name}: "))
}

/// The source as CSI's VolumeContentSource.
pub(super) fn content_source(source: &Source) -> VolumeContentSource {
    let handle = source.handle.clone();
    let content = match source.named.kind {
        SourceKind::Snapshot => {
            content::Type::Snapshot(content::SnapshotSource { snapshot_id: handle })
        }
        SourceKind::Claim => content::Type::Volume(content::VolumeSource { volume_id: handle }),
    };
    VolumeContentSource { r#type: Some(content) }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
