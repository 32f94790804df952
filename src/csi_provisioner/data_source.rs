//! What a volume is made from, where it is not made empty.
//!
//! Owns the way from the claim's words to what the driver is told (reference 3.8): which source
//! the claim names and whether it may (`identify`, with `grants` for other namespaces), whether
//! this program copies such a thing at all or leaves it to a populator (reference 3.9), and
//! finding it with all checks of its state (`resolve`: `snapshot`, `clone`). Promises that no claim
//! that names a source ever gets an empty volume, that a failure names the objects whose change
//! may end it, and that whether the claim may use its source is checked at each attempt. Leaves
//! guarding a source while the driver reads it to `protection`.

mod clone;
mod grants;
mod snapshot;
mod status_text;
#[cfg(test)]
mod testing;

use self::grants::Grant;
use super::Settings;
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
};

/// The API group of snapshots.
const SNAPSHOT_GROUP: &str = "snapshot.storage.k8s.io";

/// A source as a claim names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reference<'a> {
    /// API group without version; empty for the core group.
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
    /// Whether the claim may not use it any more: the call is followed, and nobody gets its volume.
    pub(super) is_forfeited: bool,
}

/// Why a claim's source is not used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotUsed {
    /// The attempt fails.
    Failed(Failure),
    /// Somebody else makes volumes from sources of this kind.
    LeftToPopulator {
        /// The kind.
        kind: String,
    },
}

/// What the claim names as its source, and whether it may; `None` for an empty volume.
///
/// # Errors
/// The claim may not use it, or this program does not copy such a thing.
pub(super) async fn identify(
    client: &Client,
    settings: &Settings,
    order: &ProvisionRequest,
) -> Result<Option<Copyable>, NotUsed> {
    let claim = &*order.claim;
    let Some(reference) = reference(claim, settings.cross_namespace_sources)? else {
        return Ok(None);
    };
    let is_foreign = reference.namespace != claim.namespace();
    let is_forfeited = is_foreign && is_forfeited(client, order, &reference).await?;
    Ok(Some(Copyable { is_forfeited, ..copyable(claim, reference)? }))
}

/// Whether the claim may not use the source of another namespace any more, and the call that this
/// process has open for it is followed all the same, as nobody gets its volume.
///
/// # Errors
/// The claim may not use it, or that cannot be told.
async fn is_forfeited(
    client: &Client,
    order: &ProvisionRequest,
    reference: &Reference<'_>,
) -> Result<bool, Failure> {
    let followed = order.withdrawn && order.source.is_some();
    match grants::check(client, &order.claim, reference).await? {
        Grant::Stands => Ok(false),
        Grant::Lacks(_) if followed => Ok(true),
        Grant::Lacks(refusal) => Err(refusal),
    }
}

/// The claim's source as its spec names it.
fn reference(claim: &Claim, cross_namespace: bool) -> Result<Option<Reference<'_>>, Failure> {
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
    Ok(Some(Reference { group, kind, namespace, name }))
}

/// Tells what this program copies from what populators fill in.
fn copyable(claim: &Claim, reference: Reference<'_>) -> Result<Copyable, NotUsed> {
    let Reference { group, kind, namespace, name } = reference;
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
    Ok(Copyable { kind, namespace, name, is_forfeited: false })
}

/// Finds the source and checks its state. `size` is what the claim asks for.
///
/// A call that this process has open is asked for again with the source that it was asked with: its
/// object may be gone or changed by now, and the driver may have made the volume.
///
/// # Errors
/// In the original's words.
pub(super) async fn resolve(
    client: &Client,
    settings: &Settings,
    order: &ProvisionRequest,
    size: &Quantity,
    named: &Copyable,
) -> Result<Source, Failure> {
    if let Some(asked) = &order.source {
        return Ok(asked.clone());
    }
    let ask = Ask { settings, order, size, named };
    let found = match named.kind {
        SourceKind::Snapshot => snapshot::find(client, &ask).await,
        SourceKind::Claim => clone::find(client, &ask).await,
    };
    found.map_err(|failure| told(named, failure))
}

/// What a source is checked against.
struct Ask<'a> {
    settings: &'a Settings,
    order: &'a ProvisionRequest,
    /// What the claim asks for.
    size: &'a Quantity,
    named: &'a Copyable,
}

/// A size as sources are compared by it: what does not fit is nothing, as in the original and as
/// the driver would be asked for it.
fn bytes(size: &Quantity) -> i64 {
    size.checked_value().unwrap_or(0)
}

/// The failure as the claim's user reads it.
fn told(named: &Copyable, failure: Failure) -> Failure {
    let kind = match named.kind {
        SourceKind::Snapshot => "VolumeSnapshot",
        SourceKind::Claim => "PersistentVolumeClaim",
    };
    let name = &named.name;
    failure.prefixed(&format!("error getting handle for DataSource Type {kind} by Name {name}: "))
}

/// The source as the driver is told.
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
