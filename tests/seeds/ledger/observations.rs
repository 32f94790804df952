//! What the ledger learns from the API server's objects: the history of claims, PersistentVolumes,
//! attachments and the Lease.

use std::collections::BTreeSet;

use csi_provisioner::controller::{
    claims::record_status::{FINALIZER, RECORD},
    model::record::Record,
};
use serde_json::Value;
use testkit::apiserver::ApiServer;
use tokio::time::Instant;

use super::{Inner, LeaseTruth, VolumeTruth, text};
use crate::{
    admins::BY_HAND,
    core::DRIVER,
    external_provisioner,
    storage::{image_of, name_of, node_of},
};

impl Inner {
    pub(super) fn see_claims(&mut self, api: &ApiServer, now: Instant) {
        let mut standing = BTreeSet::new();
        let before = std::mem::take(&mut self.recorded);
        for claim in api.objects("PersistentVolumeClaim") {
            let uid = text(claim.value(), "/metadata/uid").to_owned();
            self.claims.entry(uid.clone()).or_default();
            let volume = text(claim.value(), "/spec/volumeName");
            if !volume.is_empty() {
                self.named.entry(uid.clone()).or_insert_with(|| (now, volume.to_owned()));
            }
            if let Some(record) = Recorded::on(claim.value()) {
                let since = before.get(&uid).filter(|(_, old)| *old == record);
                let since = since.map_or(now, |(since, _)| *since);
                self.recorded.insert(uid.clone(), (since, record));
                self.ever_recorded.insert(uid.clone());
            }
            if claim.value()["metadata"]["deletionTimestamp"].is_null() {
                standing.insert(uid);
            }
        }
        for (uid, deleted) in &mut self.claims {
            if !standing.contains(uid) {
                deleted.get_or_insert(now);
            }
        }
    }

    pub(super) fn see_attachments(&mut self, api: &ApiServer, now: Instant) {
        let attachments = api.objects("VolumeAttachment");
        let there: BTreeSet<&str> = attachments
            .iter()
            .map(|attachment| text(attachment.value(), "/spec/source/persistentVolumeName"))
            .collect();
        self.attached.retain(|volume, _| there.contains(volume.as_str()));
        for volume in there {
            self.attached.entry(volume.to_owned()).or_insert(now);
        }
    }

    pub(super) fn see_volumes(&mut self, api: &ApiServer, now: Instant) {
        let mut there = Vec::new();
        for object in api.objects("PersistentVolume") {
            let volume = object.value();
            let uid = text(volume, "/metadata/uid").to_owned();
            let truth = self.volumes.entry(uid.clone()).or_insert_with(|| VolumeTruth {
                name: text(volume, "/metadata/name").to_owned(),
                handle: text(volume, "/spec/csi/volumeHandle").to_owned(),
                by_hand: !text(volume, &format!("/metadata/annotations/{}", escaped(BY_HAND)))
                    .is_empty(),
                provisioned: !text(
                    volume,
                    "/metadata/annotations/pv.kubernetes.io~1provisioned-by",
                )
                .is_empty(),
                kept: Some(now),
                created: Some(now),
                ..VolumeTruth::default()
            });
            if truth.claim.is_empty() {
                text(volume, "/spec/claimRef/uid").clone_into(&mut truth.claim);
            }
            // Until its claim names it nobody can use it.
            let named = self.named.get(&truth.claim).is_some_and(|(_, name)| *name == truth.name);
            if named && text(volume, "/status/phase") == "Bound" {
                truth.bound.get_or_insert(now);
            }
            // Whatever is deleted without our finalizer goes with nobody's leave. What was removed before it
            // was made has left nothing: one that cannot be used is made again.
            let removal = self.removals.get(&truth.handle);
            let is_removed =
                removal.is_some_and(|it| truth.created.is_none_or(|at| it.began >= at));
            if is_let_go(volume) && !is_removed {
                truth.stripped = true;
            }
            if may_go(volume) {
                truth.kept = None;
            } else {
                truth.kept.get_or_insert(now);
            }
            let own = name_of(image_of(&truth.handle));
            if own != truth.name && !self.taken.contains(&truth.name) {
                self.taken.insert(truth.name.clone());
            }
            there.push(uid);
        }
        for (uid, truth) in &mut self.volumes {
            if !there.contains(uid) {
                truth.gone.get_or_insert(now);
            }
        }
    }

    /// What must not have been under way, when the Lease is given back.
    pub(super) fn see_lease(&mut self, api: &ApiServer, now: Instant) -> Vec<String> {
        let Some(object) = api.objects("Lease").into_iter().next() else { return Vec::new() };
        let lease = object.value();
        let (holder, spec) = (text(lease, "/spec/holderIdentity"), &lease["spec"]);
        let before = self.lease.as_ref().map(|lease| lease.holder.clone()).unwrap_or_default();
        match &mut self.lease {
            Some(known) if known.spec == *spec => {}
            Some(known) if known.holder == holder => {
                (known.spec, known.written) = (spec.clone(), now);
            }
            known => {
                *known = Some(LeaseTruth {
                    holder: holder.to_owned(),
                    since: now,
                    spec: spec.clone(),
                    written: now,
                });
            }
        }
        if !holder.is_empty() || before.is_empty() {
            return Vec::new();
        }
        let running = self.jobs.values().filter(|job| job.host == before && job.until > now);
        running
            .map(|job| format!("{before} gives the Lease back during its {}", job.what))
            .collect()
    }
}

/// Whether the volume of this PersistentVolume may be deleted.
fn may_go(volume: &Value) -> bool {
    text(volume, "/status/phase") == "Released"
        && text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete"
}

/// Whether this PersistentVolume is being deleted, and does not wait for its volume to go.
fn is_let_go(volume: &Value) -> bool {
    let finalizers = volume["metadata"]["finalizers"].as_array();
    let waits =
        finalizers.is_some_and(|them| them.iter().any(|it| it == external_provisioner::PROTECTION));
    volume["metadata"]["deletionTimestamp"].is_string() && !waits
}

/// Whether a claim carries the record of an open call.
pub(crate) fn is_recorded(claim: &Value) -> bool {
    let finalizers = claim["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|it| it == FINALIZER))
}

/// The record of a call to our driver that a claim bears beside our finalizer: that alone says that
/// nothing is open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Recorded {
    volume: String,
    /// The node that the call is of; empty where it names none.
    node: String,
}

impl Recorded {
    pub(crate) fn on(claim: &Value) -> Option<Self> {
        let record = claim["metadata"]["annotations"][RECORD].as_str()?;
        let record = Record::decode(record).unwrap_or_default();
        let is_ours = is_recorded(claim) && record.driver == DRIVER;
        let node = record.node.unwrap_or_default();
        is_ours.then_some(Self { volume: record.volume, node })
    }

    /// Whether it is of the call for this image.
    pub(crate) fn is_for(&self, image: &str) -> bool {
        self.names(image) && node_of(image).is_none_or(|node| node == self.node)
    }

    /// Whether it names the image's volume, on whatever node.
    pub(crate) fn names(&self, image: &str) -> bool {
        self.volume == name_of(image)
    }

    /// The node that it is of, where that is another than the image's.
    pub(crate) fn other_node(&self, image: &str) -> Option<&str> {
        let own = node_of(image)?;
        Some(self.node.as_str()).filter(|node| !node.is_empty() && *node != own)
    }
}

/// A key in a path.
fn escaped(key: &str) -> String {
    key.replace('/', "~1")
}

/// Whether the PersistentVolume is attached to a node.
pub(crate) fn is_attached(api: &ApiServer, volume: &str) -> bool {
    let attachments = api.objects("VolumeAttachment");
    attachments
        .iter()
        .any(|object| text(object.value(), "/spec/source/persistentVolumeName") == volume)
}
