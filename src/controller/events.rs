//! The events about claims and PersistentVolumes: their types, reasons and messages, most of them those
//! of external-provisioner. [`crate::kube::events`] counts repeats, limits the rate and sends them.

use std::time::Duration;

use crate::kube::{
    events::{ComponentRecorder, Severity, Subject},
    objects::{Claim, View, Volume},
};

/// The message of the event after a panic. The panic's own message is only logged.
pub const PANICKED: &str = "internal error in csi-provisioner, see its log; this is a bug";

/// After this time the event about a claim that still waits is emitted again: the API server removes events
/// after an hour.
pub(super) const EVENT_LASTS: Duration = Duration::from_secs(45 * 60);

/// Emits events about claims and PersistentVolumes.
#[derive(Clone)]
pub struct Events(ComponentRecorder);

impl Events {
    /// Emits events by `recorder`.
    pub fn new(recorder: ComponentRecorder) -> Self {
        Self(recorder)
    }

    /// A first attempt to provision starts.
    pub fn provisioning(&self, claim: &Claim) {
        let text = format!(
            "External provisioner is provisioning volume for claim \"{}\"",
            claim_key(claim)
        );
        self.0.event(subject(claim), Severity::Normal, "Provisioning", text);
    }

    /// The claim's data source is of a kind that an external populator handles.
    pub fn left_to_populator(&self, claim: &Claim) {
        let text = "Assuming an external populator will provision the volume";
        self.0.event(subject(claim), Severity::Normal, "Provisioning", text);
    }

    /// An attempt failed, or could not start, for this reason.
    pub fn failed(&self, claim: &Claim, why: &str) {
        self.0.event(subject(claim), Severity::Warning, "ProvisioningFailed", why);
    }

    /// A call is still open, for this reason.
    pub fn still_provisioning(&self, claim: &Claim, why: &str) {
        let text = format!(
            "Still provisioning volume for claim \"{}\": {why}; it is asked again until it is done",
            claim_key(claim)
        );
        self.0.event(subject(claim), Severity::Normal, "Provisioning", text);
    }

    /// Provisioning is blocked by something that further calls do not change. As no event follows until
    /// that changes, this one is exempt from the limit of events per object.
    pub fn blocked(&self, claim: &Claim, why: &str) {
        self.0.final_event(subject(claim), Severity::Warning, "ProvisioningFailed", why);
    }

    /// The claim's PersistentVolume is saved. As the claim's last event it is exempt from the limit of
    /// events per object.
    pub fn provisioned(&self, claim: &Claim, volume: &str) {
        let text = ["Successfully provisioned volume ", volume].concat();
        self.0.final_event(subject(claim), Severity::Normal, "ProvisioningSucceeded", text);
    }

    /// Deleting the volume failed for this reason.
    pub fn failed_delete(&self, volume: &Volume, why: &str) {
        self.0.event(subject(volume), Severity::Warning, "VolumeFailedDelete", why);
    }

    /// The PersistentVolume was deleted before its claim was bound to it.
    pub fn deleted_before_bound(&self, volume: &Volume) {
        let text = "deleted before its claim was bound to it: the volume stays, and the claim gets another PersistentVolume";
        self.0.event(subject(volume), Severity::Warning, "DeletedBeforeBound", text);
    }
}

/// Why a volume that is attached to this node is not deleted.
pub fn attached(volume: &Volume, node: &str) -> String {
    format!("persistentvolume {} is still attached to node {node}", volume.name())
}

/// The reference to the object in its events.
fn subject<V: View>(object: &V) -> Subject {
    Subject {
        kind: V::KIND.into(),
        api_version: V::api_version(),
        namespace: object.namespace().to_owned(),
        name: object.name().to_owned(),
        uid: object.uid().to_owned(),
        resource_version: object.meta().resource_version.clone().unwrap_or_default().into(),
    }
}

/// The claim as `namespace/name`.
pub(super) fn claim_key(claim: &Claim) -> String {
    format!("{}/{}", claim.namespace(), claim.name())
}
