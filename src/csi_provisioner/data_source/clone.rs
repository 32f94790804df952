//! Volumes cloned from the volume of another claim.
//!
//! Finds the source claim and its volume and checks both, in external-provisioner's order and words. The
//! source was read a moment ago, its volume at each attempt. Protecting the source belongs to
//! `source_protection`.

use std::{borrow::Cow, sync::Arc};

use go_fmt::quantity::Quantity;

use super::{SourceQuery, bytes, status_text::ClaimStatusText};
use crate::{
    controller::{
        dependencies::Dependency,
        model::source::{NamedSource, Source, SourceKind},
        ownership,
        provisioner::Failure,
    },
    csi_provisioner::reads::Reads,
    kube::{
        ApiError, Client, Name,
        objects::{Claim, CloneSource, View as _, Volume},
    },
};

/// The finalizer of a claim whose volume is being cloned.
const PROTECTION: &str = SourceKind::Claim.finalizer();

/// Why a claim cannot be cloned.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    /// The namespace is that of the new claim, as in external-provisioner.
    #[error("error getting PVC {name} (namespace \"{namespace}\") from api server: {why}")]
    Unread { name: String, namespace: String, why: String },
    #[error("the PVC DataSource {name} must have a status of Bound.  Got {status}")]
    NotBound { name: String, status: String },
    #[error("the PVC DataSource {0} is currently being deleted")]
    Deleting(String),
    #[error("the source PVC ({0}) storageclass cannot be empty")]
    SourceWithoutClass(String),
    #[error("the requested PVC ({0}) storageclass cannot be empty")]
    ClaimWithoutClass(String),
    #[error("the size {size:?} of the source PVC {name} is no quantity: {why}")]
    OddSize { name: String, size: String, why: String },
    #[error(
        "error, new PVC request must be greater than or equal in size to the specified PVC data source, requested {requested} but source is {least}"
    )]
    TooSmall { requested: i64, least: i64 },
    #[error("volume name is empty in source PVC {0}")]
    NoVolumeName(String),
    /// external-provisioner only logs the cause. It stays so where the PersistentVolume is another
    /// driver's, as neither its source nor the claim's volumeName can be changed.
    #[error("claim in dataSource not bound or invalid")]
    BadVolume { why: String, for_ever: bool },
    #[error(
        "the source PVC and destination PVCs must have the same volume mode for cloning.  Source is {source_mode}, but new PVC requested {requested}"
    )]
    OtherMode { source_mode: &'static str, requested: &'static str },
}

/// Finds the claim that is to be cloned.
///
/// # Errors
/// Why this claim cannot be cloned.
pub(super) async fn find(reads: &Reads, query: &SourceQuery<'_>) -> Result<Source, Failure> {
    let NamedSource { namespace, name, .. } = query.named;
    let dependency = Dependency::object::<Claim>(Some(namespace), name);
    let source = match reads.claims.get(Some(namespace), name).await {
        Ok(source) => source,
        Err(error) => {
            return Err(
                Failure::new(unread(query, &error)).unread(dependency, error.is_not_found())
            );
        }
    };
    let found = find_volume(&reads.client, query, &source).await;
    found.map_err(|unusable| {
        let failure = Failure::new(&unusable).awaiting([dependency]);
        match unusable {
            Unusable::BadVolume { why, for_ever } => {
                let failure = failure.because(why);
                if for_ever { failure.lasting() } else { failure }
            }
            _ => failure.lasting(),
        }
    })
}

async fn find_volume(
    client: &Client,
    query: &SourceQuery<'_>,
    source: &CloneSource,
) -> Result<Source, Unusable> {
    check_claim(query, source)?;
    let volume = read_volume(client, source).await?;
    let handle = check_volume(query, source, &volume)?;
    check_mode(&query.request.claim, &volume)?;
    let (uid, handle) = (source.uid().to_owned(), handle.into_owned());
    Ok(Source { named: query.named.clone(), uid, handle })
}

/// external-provisioner reads the source from its cache, whose error for a missing claim differs
/// from the API server's, and which does not validate names.
fn unread(query: &SourceQuery<'_>, error: &Arc<ApiError>) -> Unusable {
    let name = &query.named.name;
    let absent = error.is_not_found() || matches!(**error, ApiError::BadName(_));
    Unusable::Unread {
        name: name.clone(),
        namespace: query.request.claim.namespace().to_owned(),
        why: if absent { not_found(name) } else { error.to_string() },
    }
}

fn not_found(name: &str) -> String {
    format!("persistentvolumeclaim \"{name}\" not found")
}

/// Checks the source claim.
fn check_claim(query: &SourceQuery<'_>, source: &CloneSource) -> Result<(), Unusable> {
    let claim = &query.request.claim;
    let name = || source.name().to_owned();
    if source.status.phase.as_deref() != Some("Bound") {
        let status = ClaimStatusText(&source.status).to_string();
        return Err(Unusable::NotBound { name: name(), status });
    }
    // What was read may be from before the deletion.
    let is_late = query.late_for == Some(source.uid());
    if is_late || source.is_terminating() && !is_held_for(claim, source) {
        return Err(Unusable::Deleting(name()));
    }
    if !ownership::names_class(source, &source.spec) {
        return Err(Unusable::SourceWithoutClass(name()));
    }
    if !ownership::names_class(&**claim, &claim.spec) {
        return Err(Unusable::ClaimWithoutClass(claim.name().to_owned()));
    }
    let (requested, least) = (bytes(query.size), bytes(&size(source)?));
    if requested < least {
        return Err(Unusable::TooSmall { requested, least });
    }
    Ok(())
}

/// Whether the source, which is being deleted, is kept for this claim: it has our finalizer, and
/// the claim is not newer than the deletion. Otherwise the two would wait for each other for ever.
/// Both timestamps are whole seconds, so a claim created in the same second may have come first,
/// and is served. Later claims are refused, so that the source is eventually deleted.
fn is_held_for(claim: &Claim, source: &CloneSource) -> bool {
    let (born, deleted) = (&claim.metadata.creation_timestamp, &source.metadata.deletion_timestamp);
    let was_before = matches!((born, deleted), (Some(born), Some(deleted)) if born.0 <= deleted.0);
    was_before && source.has_finalizer(PROTECTION)
}

/// The size that the source claim requests; the capacity of its volume is not considered.
fn size(source: &CloneSource) -> Result<Quantity, Unusable> {
    let Some(size) = &source.spec.resources.requests.storage else {
        return Ok(Quantity::from_bytes(0));
    };
    Quantity::parse(size).map_err(|why| Unusable::OddSize {
        name: source.name().to_owned(),
        size: size.to_string(),
        why: why.to_string(),
    })
}

async fn read_volume(client: &Client, source: &CloneSource) -> Result<Volume, Unusable> {
    let volume = source.spec.volume_name.as_deref().unwrap_or_default();
    if volume.is_empty() {
        return Err(Unusable::NoVolumeName(source.name().to_owned()));
    }
    let read = async { client.get::<Volume>(Name::cluster(volume)?).await };
    read.await.map_err(|error| bad_volume(volume, &format!("it cannot be read: {error}"), false))
}

/// The handle of the source's volume, if it is ours and bound to the source. In-tree volumes that
/// the driver took over are ours.
fn check_volume<'a>(
    query: &SourceQuery<'_>,
    source: &CloneSource,
    volume: &'a Volume,
) -> Result<Cow<'a, str>, Unusable> {
    let bad = |why: &str| Err(bad_volume(volume.name(), why, false));
    let handle = match query.settings.handle(volume) {
        Ok(handle) => handle,
        Err(why) => {
            let why = format!("it is not this driver's: {why}");
            return Err(bad_volume(volume.name(), &why, true));
        }
    };
    let Some(whose) = &volume.spec.claim_ref else {
        return bad("it is bound to no claim");
    };
    if (whose.uid.as_str(), whose.namespace.as_str(), whose.name.as_str())
        != (source.uid(), source.namespace(), source.name())
    {
        return bad("it is bound to another claim");
    }
    if volume.status.phase != "Bound" {
        return bad("its phase is not Bound");
    }
    Ok(handle)
}

/// The user gets external-provisioner's text; the cause is logged.
fn bad_volume(volume: &str, why: &str, for_ever: bool) -> Unusable {
    tracing::warn!(volume, why, "the volume of a claim that is to be cloned cannot be used");
    let why = format!("The PersistentVolume {volume} of the source cannot be used: {why}.");
    Unusable::BadVolume { why, for_ever }
}

/// Checks that the clone has its source's volume mode.
fn check_mode(claim: &Claim, volume: &Volume) -> Result<(), Unusable> {
    let requested = mode(claim.spec.volume_mode.as_deref());
    let source_mode = mode(volume.spec.volume_mode.as_deref());
    if requested == source_mode {
        Ok(())
    } else {
        Err(Unusable::OtherMode { source_mode, requested })
    }
}

/// The volume mode; the default is Filesystem.
fn mode(mode: Option<&str>) -> &'static str {
    if mode == Some("Block") { "Block" } else { "Filesystem" }
}

#[cfg(test)]
mod tests;
