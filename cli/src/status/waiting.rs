//! The claims that wait for a pod: the leader does not know them, as their volumes are nobody's yet.

use csi_provisioner::{
    controller::ownership::ProvisionerIdentity,
    kube::{
        ApiError, Client, Scope,
        objects::{Claim, StorageClass, View as _},
    },
};

use crate::{
    check::claims::{Waiting, waiting},
    connection::list,
};

/// Reads the claims of this driver that wait for a pod that uses them, as `namespace/name`.
///
/// # Errors
/// What cannot be read.
pub(super) async fn for_a_pod(client: &Client, driver: &str) -> Result<Vec<String>, ApiError> {
    let classes: Vec<StorageClass> = list(client, &Scope::all(), |_| true).await?;
    let claims: Vec<Claim> = list(client, &Scope::all(), Claim::is_unbound).await?;
    let identity = ProvisionerIdentity::of_driver(driver);
    let mut waiting = waiting(&identity, &claims, &classes);
    waiting.retain(|(why, _)| *why == Waiting::NoConsumer);
    Ok(waiting.iter().map(|(_, it)| format!("{}/{}", it.namespace(), it.name())).collect())
}
