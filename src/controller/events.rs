//! What users read about their claims and volumes.
//!
//! Owns the reasons and texts of the controller's events (reference 3.12). Leaves repeats, limits
//! and delivery to `kube_api::events`.

use crate::kube_api::{
    events::{Severity, Source, Subject},
    views::{Claim, View, Volume},
};

/// What users read of a panic; its message is for the log.
pub const PANICKED: &str = "internal error in csi-provisioner, see its log; this is a bug";

/// Tells about claims.
#[derive(Clone)]
pub struct ClaimEvents(Source);

impl ClaimEvents {
    /// Tells as `source`.
    pub fn new(source: Source) -> Self {
        Self(source)
    }

    /// An attempt starts.
    pub fn provisioning(&self, claim: &Claim) {
        let text = format!(
            "External provisioner is provisioning volume for claim \"{}\"",
            claim_key(claim)
        );
        self.0.event(&subject(claim), Severity::Normal, "Provisioning", &text);
    }

    /// An attempt failed, or none can be made, for this reason.
    pub fn failed(&self, claim: &Claim, why: &str) {
        self.0.event(&subject(claim), Severity::Warning, "ProvisioningFailed", why);
    }

    /// Something that no call will change keeps the claim from its volume: the last word until
    /// that changes, so it gets out however many failures came before.
    pub fn blocked(&self, claim: &Claim, why: &str) {
        self.0.last_word(&subject(claim), Severity::Warning, "ProvisioningFailed", why);
    }

    /// The driver says that the request can't be met as it stands.
    pub fn infeasible(&self, claim: &Claim, why: &str) {
        self.failed(
            claim,
            &format!(
                "Volume provisioning failed with infeasible error. Retries will be delayed. {why}"
            ),
        );
    }

    /// The claim's PersistentVolume is saved: the last word about this claim.
    pub fn provisioned(&self, claim: &Claim, volume: &str) {
        let text = format!("Successfully provisioned volume {volume}");
        self.0.last_word(&subject(claim), Severity::Normal, "ProvisioningSucceeded", &text);
    }
}

/// Tells about volumes.
#[derive(Clone)]
pub struct VolumeEvents(Source);

impl VolumeEvents {
    /// Tells as `source`.
    pub fn new(source: Source) -> Self {
        Self(source)
    }

    /// Deleting the volume failed for this reason.
    pub fn failed_delete(&self, volume: &Volume, why: &str) {
        self.0.event(&subject(volume), Severity::Warning, "VolumeFailedDelete", why);
    }
}

/// The object as events name it.
fn subject<V: View>(object: &V) -> Subject {
    Subject {
        kind: V::kind(&()).into_owned(),
        api_version: V::api_version(&()).into_owned(),
        namespace: object.namespace().to_owned(),
        name: object.name().to_owned(),
        uid: object.uid().to_owned(),
        resource_version: object.meta().resource_version.clone().unwrap_or_default(),
    }
}

/// `namespace/name`, as logs and events name a claim.
pub(super) fn claim_key(claim: &Claim) -> String {
    format!("{}/{}", claim.namespace(), claim.name())
}
