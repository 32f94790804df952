//! What the users of the cluster do during the storm: claims come at an even pace, some are clones, and
//! some are deleted a moment later.

use std::{collections::BTreeSet, time::Duration};

use fastrand::Rng;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};
use testkit::apiserver::serve::manifests;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::is_bound;
use crate::huge::fat_and_writable;

/// The namespace of all claims.
pub(crate) const NAMESPACE: &str = "storm";

/// The class of all claims.
pub(crate) const CLASS: &str = "storm";

/// How many claims stay, and are cloned.
pub(crate) const SOURCES: usize = 5;

/// How long a claim that is deleted exists at most, in milliseconds.
const SHORT_LIFE: u64 = 1500;

/// What was done.
#[derive(Default)]
pub(crate) struct Done {
    /// The names of the volumes of all claims ever made.
    pub(crate) volumes: BTreeSet<String>,
    /// The claims that were not deleted.
    pub(crate) staying: BTreeSet<String>,
    /// How many are clones.
    pub(crate) clones: usize,
}

/// The users of one namespace.
#[derive(Clone)]
pub(crate) struct Users {
    pub(crate) client: Client,
}

impl Users {
    pub(crate) fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) async fn all_claims(&self) -> Vec<PersistentVolumeClaim> {
        self.claims().list(&ListParams::default()).await.unwrap().items
    }

    /// All PersistentVolumes of the class.
    pub(crate) async fn all_volumes(&self) -> Vec<PersistentVolume> {
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let all = volumes.list(&ListParams::default()).await.unwrap().items;
        let is_ours = |volume: &PersistentVolume| {
            volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()) == Some(CLASS)
        };
        all.into_iter().filter(is_ours).collect()
    }

    /// Makes a claim; the name of the volume that it must get.
    pub(crate) async fn create(&self, name: &str, source: Option<&str>) -> String {
        let mut claim = json!({
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"storageClassName": CLASS, "accessModes": ["ReadWriteOnce"],
                     "resources": {"requests": {"storage": "1Gi"}}},
        });
        if let Some(source) = source {
            claim["spec"]["dataSource"] = json!({"kind": "PersistentVolumeClaim", "name": source});
        }
        let claim = serde_json::from_value(claim).unwrap();
        let made = self.claims().create(&PostParams::default(), &claim).await.unwrap();
        format!("pvc-{}", made.uid().unwrap())
    }

    /// Makes a claim as large as the server takes it, which is bound to a volume that is not of the class.
    pub(crate) async fn create_large(&self, name: &str, driver: &str) {
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "by-hand",
                "csi": {"driver": driver, "volumeHandle": name},
            },
        });
        manifests::apply(&self.client, &[volume]).await.unwrap();
        let mut claim = fat_and_writable(name, "by-hand");
        claim.metadata.namespace = Some(NAMESPACE.into());
        if let Some(spec) = &mut claim.spec {
            spec.volume_name = Some(name.into());
        }
        self.claims().create(&PostParams::default(), &claim).await.unwrap();
        while !is_bound(&self.claims().get(name).await.unwrap()) {
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Makes the claims that stay and are cloned.
    pub(crate) async fn create_sources(&self) -> Done {
        let mut done = Done::default();
        for number in 0..SOURCES {
            let name = format!("source-{number}");
            done.volumes.insert(self.create(&name, None).await);
            done.staying.insert(name);
        }
        done
    }

    /// Makes so many claims, evenly over this time. A tenth are clones; three tenths are deleted.
    pub(crate) async fn come_and_go(self, count: usize, time: Duration, seed: u64) -> Done {
        let (mut dice, mut done, mut deletions) =
            (Rng::with_seed(seed), Done::default(), JoinSet::new());
        let (start, apart) = (Instant::now(), time / u32::try_from(count).unwrap());
        for number in 0..count {
            let due = apart * u32::try_from(number).unwrap();
            sleep(due.saturating_sub(start.elapsed())).await;
            let name = format!("claim-{number}");
            let source = (dice.f64() < 0.1).then(|| format!("source-{}", dice.usize(0..SOURCES)));
            done.clones += usize::from(source.is_some());
            done.volumes.insert(self.create(&name, source.as_deref()).await);
            if dice.f64() < 0.3 {
                let life = Duration::from_millis(dice.u64(0..=SHORT_LIFE));
                deletions.spawn(self.clone().delete(name, life));
            } else {
                done.staying.insert(name);
            }
        }
        deletions.join_all().await;
        done
    }

    async fn delete(self, name: String, after: Duration) {
        sleep(after).await;
        self.claims().delete(&name, &DeleteParams::default()).await.unwrap();
    }

    /// Deletes all claims.
    pub(crate) async fn delete_all(&self) {
        let (deletion, all) = (DeleteParams::default(), ListParams::default());
        self.claims().delete_collection(&deletion, &all).await.unwrap();
    }
}

/// The namespace and the class.
pub(crate) fn objects(driver: &str) -> [Value; 2] {
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
               "provisioner": driver, "reclaimPolicy": "Delete"}),
    ]
}
