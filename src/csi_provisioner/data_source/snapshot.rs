//! Volumes restored from snapshots.
//!
//! Finds a VolumeSnapshot and its content and checks both, in external-provisioner's order and words. The
//! snapshot was read a moment ago, its content at each attempt. Making snapshots ready belongs to the
//! snapshotter.

use std::sync::Arc;

use go_fmt::{parse_bool, quantity::Quantity};

use super::{SourceQuery, bytes};
use crate::{
    controller::{
        dependencies::Dependency,
        model::source::{NamedSource, Source, SourceKind},
        provisioner::Failure,
    },
    csi_provisioner::reads::Reads,
    kube::{
        ApiError, Client, Name,
        objects::{Claim, View as _, VolumeSnapshot, VolumeSnapshotContent},
    },
};

/// The finalizer of a snapshot that volumes are being made from.
const PROTECTION: &str = SourceKind::Snapshot.finalizer();

/// On a VolumeSnapshotContent: whether a restore may change the volume mode.
const ALLOW_MODE_CHANGE: &str = "snapshot.storage.kubernetes.io/allow-volume-mode-change";

/// Why a snapshot cannot be restored for a claim.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("error getting snapshot {name} from api server: {error}")]
    Unread { name: String, error: Arc<ApiError> },
    /// And it has no finalizer of ours.
    #[error("snapshot {0} is being deleted")]
    Deleting(String),
    #[error("snapshot {0} not bound")]
    Unbound(String),
    /// external-provisioner only logs the cause. One that is gone does not come back: its name is in the
    /// snapshot's status, and only the snapshotter makes contents.
    #[error("error getting snapshotcontent {content} for snapshot {snapshot}")]
    ContentUnread { content: String, snapshot: String, is_gone: bool, why: String },
    #[error("snapshotcontent {content} for snapshot {snapshot} is bound to a different snapshot")]
    OthersContent { content: String, snapshot: String },
    #[error(
        "snapshotcontent {content} for snapshot {snapshot} is not handled by CSI driver of StorageClass {class}"
    )]
    OthersDriver { content: String, snapshot: String, class: String },
    #[error("snapshot {0} is not Ready")]
    NotReady(String),
    #[error("snapshot handle {0} is not available")]
    NoHandle(String),
    #[error("error getting capacity for PVC {claim} when creating snapshot {snapshot}")]
    NoSizeRequested { claim: String, snapshot: String },
    #[error("the size {size:?} of snapshot {snapshot} is no quantity: {why}")]
    OddSize { snapshot: String, size: String, why: String },
    #[error(
        "requested volume size {requested} is less than the size {least} for the source snapshot {snapshot}"
    )]
    TooSmall { requested: i64, least: i64, snapshot: String },
    #[error(
        "requested volume {claim} modifies the mode of the source volume but does not have permission to do so. {why}"
    )]
    ModeChange { claim: String, why: String },
}

/// Finds the snapshot that the claim names.
///
/// # Errors
/// Why it cannot be restored for this claim.
pub(super) async fn find(reads: &Reads, query: &SourceQuery<'_>) -> Result<Source, Failure> {
    let NamedSource { namespace, name, .. } = query.named;
    let dependency = Dependency::object::<VolumeSnapshot>(Some(namespace), name);
    let snapshot = reads
        .snapshots
        .get(Some(namespace), name)
        .await
        .map_err(|error| Unusable::Unread { name: name.clone(), error })
        .map_err(|unread| Failure::new(&unread).unread(dependency.clone(), unread.is_missing()))?;
    let content = bound_content(&snapshot)
        .map_err(|unusable| Failure::new(&unusable).awaiting([dependency.clone()]).lasting())?;
    let usable = find_content(&reads.client, query, &snapshot, content).await;
    let handle = usable.map_err(|unusable| {
        let content = unusable.blames_content().then_some(content);
        let content = content.map(|name| Dependency::object::<VolumeSnapshotContent>(None, name));
        let failure =
            Failure::new(&unusable).awaiting([dependency.clone()].into_iter().chain(content));
        match unusable {
            Unusable::ContentUnread { is_gone: false, why, .. } => failure.because(why),
            Unusable::ContentUnread { why, .. } => failure.because(why).lasting(),
            _ => failure.lasting(),
        }
    })?;
    Ok(Source { named: query.named.clone(), uid: snapshot.uid().to_owned(), handle })
}

/// The handle of the snapshot's content, after all checks.
async fn find_content(
    client: &Client,
    query: &SourceQuery<'_>,
    snapshot: &VolumeSnapshot,
    name: &str,
) -> Result<String, Unusable> {
    let read = async { client.get::<VolumeSnapshotContent>(Name::cluster(name)?).await };
    let content = read.await.map_err(|error| {
        let snapshot = snapshot.name().to_owned();
        let is_gone = error.is_not_found();
        let why =
            format!("The VolumeSnapshotContent {name} of the snapshot cannot be read: {error}.");
        let unusable = Unusable::ContentUnread { content: name.to_owned(), snapshot, is_gone, why };
        tracing::warn!(%error, "{unusable}");
        unusable
    })?;
    let handle = check_content(query, snapshot, &content)?;
    check_size(query, snapshot)?;
    if query.settings.flags.prevent_volume_mode_conversion {
        check_mode(&query.request.claim, &content)?;
    }
    Ok(handle.to_owned())
}

/// The name of the snapshot's content.
fn bound_content(snapshot: &VolumeSnapshot) -> Result<&str, Unusable> {
    let name = || snapshot.name().to_owned();
    // Our finalizer keeps it until the restores are done.
    if snapshot.is_terminating() && !snapshot.has_finalizer(PROTECTION) {
        return Err(Unusable::Deleting(name()));
    }
    let bound = snapshot.status.bound_volume_snapshot_content_name.as_deref();
    bound.ok_or_else(|| Unusable::Unbound(name()))
}

/// Checks that the content belongs to this snapshot and our driver; returns its handle.
fn check_content<'a>(
    query: &SourceQuery<'_>,
    snapshot: &VolumeSnapshot,
    content: &'a VolumeSnapshotContent,
) -> Result<&'a str, Unusable> {
    let name = || snapshot.name().to_owned();
    let whose = &content.spec.volume_snapshot_ref;
    if (whose.uid.as_str(), whose.namespace.as_str(), whose.name.as_str())
        != (snapshot.uid(), snapshot.namespace(), snapshot.name())
    {
        return Err(Unusable::OthersContent {
            content: content.name().to_owned(),
            snapshot: name(),
        });
    }
    if content.spec.driver != query.settings.driver.name {
        return Err(Unusable::OthersDriver {
            content: content.name().to_owned(),
            snapshot: name(),
            class: query.request.class.name().to_owned(),
        });
    }
    if snapshot.status.ready_to_use != Some(true) {
        return Err(Unusable::NotReady(name()));
    }
    content.status.snapshot_handle.as_deref().ok_or_else(|| Unusable::NoHandle(name()))
}

/// Checks that the claim requests at least the snapshot's restore size.
fn check_size(query: &SourceQuery<'_>, snapshot: &VolumeSnapshot) -> Result<(), Unusable> {
    let Some(least) = snapshot.status.restore_size.as_deref() else { return Ok(()) };
    let claim = &query.request.claim;
    let name = || snapshot.name().to_owned();
    if claim.spec.resources.requests.storage.is_none() {
        return Err(Unusable::NoSizeRequested { claim: claim.name().to_owned(), snapshot: name() });
    }
    let least = Quantity::parse(least).map_err(|why| Unusable::OddSize {
        snapshot: name(),
        size: least.to_owned(),
        why: why.to_string(),
    })?;
    let (requested, least) = (bytes(query.size), bytes(&least));
    if requested < least {
        return Err(Unusable::TooSmall { requested, least, snapshot: name() });
    }
    if requested > least {
        tracing::debug!(requested, least, "the volume will be larger than its snapshot");
    }
    Ok(())
}

/// Checks that the volume mode stays the same, or may change. An unknown mode is not compared.
fn check_mode(claim: &Claim, content: &VolumeSnapshotContent) -> Result<(), Unusable> {
    let (Some(source), Some(wanted)) = (&content.spec.source_volume_mode, &claim.spec.volume_mode)
    else {
        return Ok(());
    };
    if **source == **wanted {
        return Ok(());
    }
    let name = content.name();
    let why = match content.annotation(ALLOW_MODE_CHANGE).map(parse_bool) {
        Some(Ok(true)) => return Ok(()),
        Some(Ok(false)) => {
            format!("{ALLOW_MODE_CHANGE} is set to false on snapshotcontent {name}")
        }
        Some(Err(error)) => format!(
            "failed to convert {ALLOW_MODE_CHANGE} annotation value to boolean with error: {error}"
        ),
        None => format!("{ALLOW_MODE_CHANGE} annotation is not present on snapshotcontent {name}"),
    };
    let claim = format!("{}/{}", claim.namespace(), claim.name());
    Err(Unusable::ModeChange { claim, why })
}

impl Unusable {
    /// Whether the snapshot does not exist.
    fn is_missing(&self) -> bool {
        matches!(self, Self::Unread { error, .. } if error.is_not_found())
    }

    /// Whether a change of the content may resolve it, too.
    fn blames_content(&self) -> bool {
        matches!(
            self,
            Self::ContentUnread { .. }
                | Self::OthersContent { .. }
                | Self::NoHandle(_)
                | Self::ModeChange { .. }
        )
    }
}

#[cfg(test)]
mod tests;
