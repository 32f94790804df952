//! Looks at one claim: what this program would do for it, and what external-provisioner did.
//!
//! A thin loop of reads; what follows from them is decided by [`judgement`](super::judgement).

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;

use super::{
    judgement::{Agreement, Documented, Expectation, Judgement, Uncertainty},
    metrics::ShadowMetrics,
    prediction::Prediction,
    tracker::{Task, Tracker, claim_name},
};
use csi_provisioner::{
    controller::{
        claims::plan::Plan,
        classes::Classes,
        ownership::{PROVISIONED_BY, ProvisionerIdentity, class_of_claim},
        provisioner::ProvisionRequest,
    },
    csi_provisioner::{Checks, ProvisionerSettings, Reads, Topology},
    kube::{
        Client, Kind, Name,
        objects::{Claim, View as _, Volume},
    },
    runtime::Clock,
    workqueue::{self, Action},
};

use crate::preview::preview;

/// When a claim that would not be served is looked at again. Its PersistentVolume, or a change of the claim
/// or its class, comes first.
const REFUSED_AGAIN: Duration = Duration::from_secs(20 * 60);

/// What a worker needs. Clones share the tracker.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) tracker: Arc<Mutex<Tracker>>,
    pub(super) identity: Arc<ProvisionerIdentity>,
    pub(super) settings: Arc<ProvisionerSettings>,
    pub(super) client: Client,
    pub(super) reads: Arc<Reads>,
    pub(super) classes: Classes,
    pub(super) topology: Option<Topology>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: ShadowMetrics,
}

impl workqueue::Worker<String> for Worker {
    /// Looks at the claim of this UID.
    async fn sync(&self, uid: &String) -> Action {
        let Some(task) = self.tracker.lock().task(uid) else { return Action::Done };
        let expectation = match &task.expectation {
            Some(known) if is_settled(known, &task) => Arc::clone(known),
            _ => self.expect(&task.claim).await,
        };
        match (&task.volume, &*expectation) {
            (Some(volume), _) => self.compare(uid, &task, &expectation, volume).await,
            (None, Expectation::Provision(_)) => Action::Done,
            (None, Expectation::Refuse(..)) => Action::RequeueAfter(REFUSED_AGAIN),
            (None, Expectation::Unknown(_)) => Action::Retry,
        }
    }
}

impl Worker {
    /// Finds out what this program would do, and keeps that.
    async fn expect(&self, claim: &Arc<Claim>) -> Arc<Expectation> {
        let expectation = Arc::new(self.expectation(claim).await);
        self.tracker.lock().expect(claim, Arc::clone(&expectation));
        expectation
    }

    async fn expectation(&self, claim: &Arc<Claim>) -> Expectation {
        if claim.is_terminating() {
            return Expectation::Refuse(
                "it is being deleted".to_owned(),
                Some(Documented::DeletedClaims),
            );
        }
        let class = self.classes.get(class_of_claim(claim));
        let Some(preview) = preview(&self.identity, claim, class.as_ref()) else {
            return Expectation::Unknown("it is not this provisioner's any more".to_owned());
        };
        match preview.plan {
            Plan::Provision(request) => self.request(*request).await,
            Plan::Blocked { why, .. } => Expectation::Refuse(why, None),
            Plan::Drop => Expectation::Refuse("it is not to be served now".to_owned(), None),
            _ => Expectation::Unknown("a call of this program is open for it".to_owned()),
        }
    }

    async fn request(&self, request: ProvisionRequest) -> Expectation {
        let checks = Checks {
            reads: &self.reads,
            settings: &self.settings,
            topology: self.topology.as_ref(),
        };
        match Prediction::of(checks, request).await {
            Ok(prediction) => {
                tracing::debug!(request = ?prediction.request(), "would call CreateVolume");
                Expectation::Provision(Box::new(prediction))
            }
            Err(not_prepared) => Expectation::of_failure(&not_prepared),
        }
    }

    /// Compares the claim's PersistentVolume with the one that this program would have saved.
    async fn compare(
        &self,
        uid: &str,
        task: &Task,
        expectation: &Expectation,
        volume: &str,
    ) -> Action {
        let Ok(name) = Name::cluster(volume) else {
            self.tracker.lock().ignore(uid);
            return Action::Done;
        };
        let judgement = match self.client.get_raw(&Kind::of::<Volume>(), name).await {
            Ok(found) if !self.is_provisioned(&found) || is_of_another(&found, &task.claim) => {
                self.tracker.lock().ignore(uid);
                return Action::Done;
            }
            Ok(found) => {
                let looked_late = task.expectation.is_none();
                let uncertain = Uncertainty { class_changed: task.class_changed, looked_late };
                Judgement::of_volume(&self.settings, expectation, &found, uncertain)
            }
            Err(error) if error.is_not_found() => Judgement::of_vanished(),
            Err(error) => {
                tracing::warn!(%error, volume, "cannot compare a PersistentVolume");
                return Action::Retry;
            }
        };
        if self.tracker.lock().finish(uid) {
            self.record_of(claim_name(&task.claim), Some(volume), &judgement);
        }
        Action::Done
    }

    /// Whether the PersistentVolume was made by a provisioner of this driver.
    fn is_provisioned(&self, found: &serde_json::Value) -> bool {
        let annotations = found.pointer("/metadata/annotations");
        let by = annotations.and_then(|all| all.get(PROVISIONED_BY)?.as_str());
        by.is_some_and(|name| self.identity.is_own_name(name))
    }

    /// Counts, logs and keeps a result.
    pub(super) fn record(&self, object: String, judgement: &Judgement) {
        self.record_of(object, None, judgement);
    }

    /// Counts, logs and keeps the result for a claim with this PersistentVolume.
    fn record_of(&self, object: String, volume: Option<&str>, judgement: &Judgement) {
        let Judgement { subject, agreement, reasons, fields, .. } = judgement;
        self.metrics.result(*subject, *agreement);
        for field in fields {
            self.metrics.difference(field);
        }
        let (subject, words) = (subject.words(), agreement.words());
        match agreement {
            Agreement::Same => tracing::debug!(object, volume, subject, ?reasons, "compared: same"),
            Agreement::Unexplained => {
                tracing::warn!(object, volume, subject, ?reasons, "compared: {words}");
            }
            Agreement::Documented | Agreement::Unknown => {
                tracing::info!(object, volume, subject, ?reasons, "compared: {words}");
            }
        }
        let time = format!("{:.0}", self.clock.wall());
        self.tracker.lock().record(object, judgement, time);
    }
}

/// Whether the PersistentVolume was made for another claim: it names that one, or is older than this one.
fn is_of_another(volume: &serde_json::Value, claim: &Claim) -> bool {
    names_another(volume, claim) || is_older(volume, claim)
}

/// Whether its `claimRef` names another claim; an administrator may leave out the UID.
fn names_another(volume: &serde_json::Value, claim: &Claim) -> bool {
    let own = [("uid", claim.uid()), ("name", claim.name()), ("namespace", claim.namespace())];
    own.iter().any(|(field, own)| {
        let named = volume.pointer("/spec/claimRef").and_then(|named| named[field].as_str());
        named.is_some_and(|text| !text.is_empty() && text != *own)
    })
}

fn is_older(volume: &serde_json::Value, claim: &Claim) -> bool {
    let created = volume.pointer("/metadata/creationTimestamp").and_then(|time| time.as_str());
    let created = created.and_then(|time| time.parse::<jiff::Timestamp>().ok());
    let claimed = claim.metadata.creation_timestamp.as_ref().map(|time| time.0);
    created.zip(claimed).is_some_and(|(created, claimed)| created < claimed)
}

/// Whether what is known of the claim suffices. A claim that has a volume although this program would not
/// have served it is looked at again: what prevented that may have ended.
fn is_settled(expectation: &Expectation, task: &Task) -> bool {
    match expectation {
        Expectation::Provision(_) => true,
        Expectation::Refuse(_, Some(_)) => task.volume.is_some(),
        Expectation::Refuse(_, None) | Expectation::Unknown(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use csi_provisioner::kube::objects::of_json;

    #[test]
    fn a_volume_of_another_claim_names_that_one_or_is_older() {
        let of = |created: &str| json!({"metadata": {"namespace": "ns", "name": "c", "uid": "u", "creationTimestamp": created}});
        let claim: Claim = of_json(&of("2026-01-01T00:00:10Z")).unwrap();
        let volume = |created: &str, uid: &str| json!({"metadata": {"creationTimestamp": created}, "spec": {"claimRef": {"uid": uid}}});
        let (before, after) = ("2026-01-01T00:00:09Z", "2026-01-01T00:00:10Z");
        for (created, uid, is_of_another_claim) in [
            (after, "u", false),
            (after, "", false),
            (after, "v", true), // under a name that both claims get
            (before, "u", true),
            (before, "v", true),
        ] {
            let found = is_of_another(&volume(created, uid), &claim);
            assert_eq!(found, is_of_another_claim, "{created}, {uid:?}");
        }
        assert!(!is_of_another(&json!({}), &claim));
        for (name, is_of_another_claim) in [("c", false), ("d", true)] {
            let found = json!({"spec": {"claimRef": {"namespace": "ns", "name": name}}});
            assert_eq!(
                is_of_another(&found, &claim),
                is_of_another_claim,
                "bound by hand to {name}"
            );
        }
    }
}
