//! A bare client: what the API server alone makes of a provisioner's writes.
//!
//! Owns writing, for each of a number of claims, an event, a PersistentVolume and another event,
//! one after the other, with nothing else to do: no watch, no driver, no claim; as the user that the
//! measured program is, as a server treats its admins otherwise. Promises objects of
//! the size that the measured program writes for this bench's driver, and no trace of its volumes
//! afterwards. Leaves comparing to [`super::backlog`].

use std::future::Future;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Event, PersistentVolume};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{cluster::for_creation, error::LoadError, objects::Family, report::Pace};

/// How many claims it writes for at once: as many as the program has writes under way.
const AT_ONCE: usize = 32;

/// When its events were.
const TIME: &str = "2025-06-01T12:00:00Z";

/// The client, and the claims it writes for, which need not exist.
pub(super) struct Bare {
    pub(super) client: Client,
    pub(super) family: Family,
    pub(super) count: usize,
}

impl Bare {
    /// Writes all there is to write; how fast.
    pub(super) async fn write(&self) -> Result<Pace, LoadError> {
        let start = Instant::now();
        self.for_each(|number| self.write_one(number)).await?;
        Ok(Pace::new(self.count, start.elapsed()))
    }

    /// Takes the volumes away. Events are left to the server, which drops them by itself.
    pub(super) async fn clean_up(&self) -> Result<(), LoadError> {
        self.for_each(|number| async move {
            let name = self.family.volume_name(number);
            self.volumes().delete(&name, &DeleteParams::default()).await?;
            Ok(())
        })
        .await
    }

    async fn for_each<F>(&self, write: impl Fn(usize) -> F) -> Result<(), LoadError>
    where
        F: Future<Output = Result<(), LoadError>>,
    {
        let numbers = stream::iter(0..self.count).map(Ok);
        numbers.try_for_each_concurrent(AT_ONCE, write).await
    }

    async fn write_one(&self, number: usize) -> Result<(), LoadError> {
        self.emit(number, "Provisioning", "External provisioner is provisioning volume for")
            .await?;
        let volume = for_creation(volume(&self.family, number))?;
        self.volumes().create(&PostParams::default(), &volume).await?;
        self.emit(number, "ProvisioningSucceeded", "Successfully provisioned volume for").await
    }

    async fn emit(&self, number: usize, reason: &str, message: &str) -> Result<(), LoadError> {
        let event: Event = for_creation(event(&self.family, number, reason, message))?;
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.family.namespace);
        events.create(&PostParams::default(), &event).await?;
        Ok(())
    }

    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }
}

/// A volume as the program writes it; kept, so that nobody deletes it meanwhile.
fn volume(family: &Family, number: usize) -> Value {
    let Family { driver, class, namespace, labels, .. } = family;
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": family.volume_name(number), "labels": labels,
            "annotations": {
                "pv.kubernetes.io/provisioned-by": driver,
                "volume.kubernetes.io/provisioner-deletion-secret-name": "",
                "volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
            },
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": namespace, "name": family.claim_name(number),
                "uid": family.uid("claim", number), "resourceVersion": "1000000",
            },
            "csi": {
                "driver": driver, "fsType": "ext4", "volumeHandle": family.uid("handle", number),
                "volumeAttributes": {
                    "storage.kubernetes.io/csiProvisionerIdentity": format!("1717243200000-8081-{driver}"),
                },
            },
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": class, "volumeMode": "Filesystem",
        },
    })
}

fn event(family: &Family, number: usize, reason: &str, message: &str) -> Value {
    let Family { driver, namespace, .. } = family;
    let (claim, uid) = (family.claim_name(number), family.uid("claim", number));
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {
            "name": format!("{claim}.{}", reason.to_lowercase()), "namespace": namespace,
        },
        "involvedObject": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace,
            "name": claim, "uid": uid, "resourceVersion": "1000000",
        },
        "reason": reason, "message": format!("{message} {claim:?}"), "type": "Normal", "count": 1,
        "source": {"component": format!("{driver}_{uid}")},
        "reportingComponent": format!("{driver}_{uid}"), "reportingInstance": "",
        "firstTimestamp": TIME, "lastTimestamp": TIME,
    })
}
