//! The source of a volume that is not created empty.
//!
//! `identify` determines which source the claim names, whether the claim may use it (`grants` for
//! other namespaces), and whether this program copies that kind or a populator fills the volume.
//! `resolve` finds the source and checks its state (`snapshot`, `clone`). A claim that names a
//! source never gets an empty volume. A failure names the objects whose change may resolve it.
//! Whether the claim may use its source is checked at each attempt. Keeping a source while the
//! driver reads it belongs to `source_protection`.

mod clone;
mod grants;
mod snapshot;
mod status_text;
#[cfg(test)]
mod testing;

use self::grants::Grant;
use super::ProvisionerSettings;
use crate::{
    controller::{
        model::source::{Source, SourceKind},
        provisioner::{Failure, ProvisionRequest},
    },
    csi::proto::{VolumeContentSource, volume_content_source as content},
    kube::{
        Client,
        objects::{Claim, MAX_NAME, View as _},
        quantity::Quantity,
    },
    source_protection::SNAPSHOT_GROUP,
};

/// A source as named by a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SourceReference<'a> {
    /// The API group without version; empty for the core group.
    group: &'a str,
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
}

/// A source of a kind that this program copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copyable {
    pub(super) kind: SourceKind,
    namespace: String,
    name: String,
    /// Whether the claim has lost access to it: an open call is continued, but its volume is
    /// discarded.
    pub(super) access_revoked: bool,
}

/// Why a claim's source is not used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotUsed {
    /// The attempt fails.
    Failed(Failure),
    /// A populator creates volumes from sources of this kind.
    LeftToPopulator {
        /// The kind.
        kind: String,
    },
}

/// The source that the claim names; `None` for an empty volume.
///
/// # Errors
/// The claim may not use it, or this program does not copy that kind.
pub(super) async fn identify(
    client: &Client,
    settings: &ProvisionerSettings,
    request: &ProvisionRequest,
) -> Result<Option<Copyable>, NotUsed> {
    let claim = &*request.claim;
    let Some(reference) = reference(claim, settings.cross_namespace_sources)? else {
        return Ok(None);
    };
    let other_namespace = reference.namespace != claim.namespace();
    let access_revoked = other_namespace && access_revoked(client, request, &reference).await?;
    Ok(Some(Copyable { access_revoked, ..copyable(claim, reference)? }))
}

/// Whether the claim has lost access to the source in another namespace, while its open call is
/// continued because its volume will be discarded.
///
/// # Errors
/// The claim may not use the source, or its grants can't be read.
async fn access_revoked(
    client: &Client,
    request: &ProvisionRequest,
    reference: &SourceReference<'_>,
) -> Result<bool, Failure> {
    let continues_open_call = request.withdrawn && request.source.is_some();
    match grants::check(client, &request.claim, reference).await? {
        Grant::Allowed => Ok(false),
        Grant::Denied(_) if continues_open_call => Ok(true),
        Grant::Denied(refusal) => Err(refusal),
    }
}

/// The claim's source as its spec names it.
fn reference(claim: &Claim, cross_namespace: bool) -> Result<Option<SourceReference<'_>>, Failure> {
    let own = claim.namespace();
    let (named, namespace) = match (&claim.spec.data_source, &claim.spec.data_source_ref) {
        (Some(source), _) => (source, own),
        (None, Some(source)) => {
            let namespace = source.namespace.as_deref().filter(|namespace| !namespace.is_empty());
            if namespace.is_some() && !cross_namespace {
                return Err(Failure::new(
                    "dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is disabled",
                )
                .lasting());
            }
            (source, namespace.unwrap_or(own))
        }
        (None, None) => return Ok(None),
    };
    let group = named.api_group.as_deref().unwrap_or_default();
    let (kind, name) = (named.kind.as_str(), named.name.as_str());
    if [group, kind, namespace, name].iter().any(|text| text.len() > MAX_NAME) {
        let text = format!(
            "the dataSource of PVC {} has a text of more than {MAX_NAME} bytes, which no object's name or kind has",
            claim.name()
        );
        return Err(Failure::new(text).lasting());
    }
    Ok(Some(SourceReference { group, kind, namespace, name }))
}

/// Separates the kinds that this program copies from those of populators.
fn copyable(claim: &Claim, reference: SourceReference<'_>) -> Result<Copyable, NotUsed> {
    let SourceReference { group, kind, namespace, name } = reference;
    let failed = |why| Err(NotUsed::Failed(Failure::new(why).lasting()));
    if name.is_empty() {
        return failed(format!("the PVC source not found for PVC {}", claim.name()));
    }
    let kind = match (kind, group) {
        ("VolumeSnapshot", SNAPSHOT_GROUP) => SourceKind::Snapshot,
        ("VolumeSnapshot", _) => {
            return failed(format!(
                "the PVC source does not belong to the right APIGroup. Expected {SNAPSHOT_GROUP}, Got {group}"
            ));
        }
        ("PersistentVolumeClaim", "") => SourceKind::Claim,
        (kind, _) => return Err(NotUsed::LeftToPopulator { kind: kind.to_owned() }),
    };
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    Ok(Copyable { kind, namespace, name, access_revoked: false })
}

/// Finds the source and checks its state. `size` is what the claim requests.
///
/// A call that this process has open is repeated with the same source: its object may be gone or
/// changed by now, and the driver may have created the volume.
///
/// # Errors
/// In external-provisioner's words.
pub(super) async fn resolve(
    client: &Client,
    settings: &ProvisionerSettings,
    request: &ProvisionRequest,
    size: &Quantity,
    named: &Copyable,
) -> Result<Source, Failure> {
    if let Some(source) = &request.source {
        return Ok(source.clone());
    }
    let query = SourceQuery { settings, request, size, named };
    let found = match named.kind {
        SourceKind::Snapshot => snapshot::find(client, &query).await,
        SourceKind::Claim => clone::find(client, &query).await,
    };
    found.map_err(|failure| user_error(named, failure))
}

/// What a source is checked against.
struct SourceQuery<'a> {
    settings: &'a ProvisionerSettings,
    request: &'a ProvisionRequest,
    /// The size that the claim requests.
    size: &'a Quantity,
    named: &'a Copyable,
}

/// A size for comparison with a source. A size that overflows counts as zero, as in
/// external-provisioner and in the request.
fn bytes(size: &Quantity) -> i64 {
    size.checked_value().unwrap_or(0)
}

/// Adds the text that users see to the failure.
fn user_error(named: &Copyable, failure: Failure) -> Failure {
    let (kind, name) = (named.kind.name(), &named.name);
    failure.prefixed(&format!("error getting handle for DataSource Type {kind} by Name {name}: "))
}

/// The source as CSI's VolumeContentSource.
pub(super) fn content_source(source: &Source) -> VolumeContentSource {
    let handle = source.handle.clone();
    let content = match source.kind {
        SourceKind::Snapshot => {
            content::Type::Snapshot(content::SnapshotSource { snapshot_id: handle })
        }
        SourceKind::Claim => content::Type::Volume(content::VolumeSource { volume_id: handle }),
    };
    VolumeContentSource { r#type: Some(content) }
}

impl From<Failure> for NotUsed {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

#[cfg(test)]
mod tests;
