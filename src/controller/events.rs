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

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use serde_json::{Value, json};

    use super::*;
    use crate::{
        kube::{
            events::Recorder,
            testing,
            testing::{Answer, Server},
        },
        metrics::Metrics,
        runtime::{Tasks, TokioSpawner, testing::paused_clock},
    };

    /// The events that are written when `emit` follows 30 failures, more than the limit per object.
    async fn written_after_failures(emit: impl FnOnce(&Events, &Claim)) -> Vec<Value> {
        let server = Server::new(|_, _| Answer::json(201, &json!({})));
        let (tasks, _) = Tasks::new(Arc::new(TokioSpawner));
        let metrics = Metrics::new();
        let (lane, clock) = (testing::event_lane(&server), paused_clock());
        let recorder = Recorder::start(lane, &tasks, clock, testing::random(), &metrics);
        let events = Events::new(recorder.for_component("driver_host"));
        let claim = json!({"metadata": {"namespace": "shop", "name": "data", "uid": "u"}});
        let claim: Claim = serde_json::from_value(claim).unwrap();
        (0..30).for_each(|_| events.failed(&claim, "busy"));
        emit(&events, &claim);
        assert_eq!(recorder.drain(Duration::from_secs(60)).await, 0);
        server.requests().iter().map(testing::RecordedRequest::json).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn success_and_blocked_events_are_written_after_any_number_of_failures() {
        let blocked =
            written_after_failures(|events, claim| events.blocked(claim, "class gone")).await;
        assert_eq!(blocked.len(), 26);
        let last = &blocked[25];
        assert_eq!(
            (&last["type"], &last["reason"]),
            (&json!("Warning"), &json!("ProvisioningFailed"))
        );
        assert_eq!(last["message"], "class gone");
        let served =
            written_after_failures(|events, claim| events.provisioned(claim, "pvc-u")).await;
        assert_eq!(served[25]["message"], "Successfully provisioned volume pvc-u");
        assert_eq!(served[25]["type"], "Normal");
        let failed = written_after_failures(|events, claim| events.failed(claim, "no")).await;
        assert_eq!(failed.len(), 25, "no further failure");
    }

    #[tokio::test(start_paused = true)]
    async fn messages_longer_than_two_kibibytes_are_cut_and_shorter_ones_are_unchanged() {
        let whole = format!("\u{1b}[31m\n{}", "x".repeat(2042));
        let long = |n: usize| format!("{n} {}", "\u{e9}".repeat(5000 + n));
        let written = written_after_failures(|events, claim| {
            events.blocked(claim, &whole);
            (0..12).for_each(|n| events.blocked(claim, &long(n)));
        });
        let written = written.await;
        let messages: Vec<&str> = written.iter().filter_map(|it| it["message"].as_str()).collect();
        assert_eq!((whole.len(), messages[25]), (2048, &*whole));
        assert!(messages.iter().all(|message| message.len() <= 2048), "{messages:?}");
        let first = messages[26];
        assert!(first.starts_with("0 \u{e9}") && first.len() > 2044, "{first}");
        assert!(first.ends_with("\u{e9}\u{2026} (cut, 10002 bytes)"), "{first}");
        let combined = messages[messages.len() - 1];
        assert!(combined.starts_with("(combined from similar events): 11 \u{e9}"), "{combined}");
        assert!(combined.ends_with("\u{2026} (cut, 10057 bytes)"), "{combined}");
    }

    #[tokio::test(start_paused = true)]
    async fn claim_events_have_external_provisioners_texts() {
        let written = |emit: fn(&Events, &Claim)| async move {
            written_after_failures(emit).await.pop().unwrap()
        };
        let provisioning = written(Events::provisioning).await;
        assert_eq!(
            (&provisioning["reason"], &provisioning["message"]),
            (
                &json!("Provisioning"),
                &json!(r#"External provisioner is provisioning volume for claim "shop/data""#)
            )
        );
        assert_eq!(provisioning["involvedObject"]["apiVersion"], "v1");
        assert_eq!(provisioning["involvedObject"]["kind"], "PersistentVolumeClaim");
        assert_eq!(provisioning["source"], json!({"component": "driver_host"}));
    }
}
