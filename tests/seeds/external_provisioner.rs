//! A coarse model of external-provisioner, which leads for a turn in between.
//!
//! It knows nothing of our records, and is killed at some await. What
//! it leaves behind is not ours to answer for.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Value, json};
use testkit::driver::{
    Backend as _, Call,
    proto::{CapacityRange, CreateVolumeRequest, DeleteVolumeRequest},
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    cluster::SELECTED_NODE,
    core::{Core, DRIVER, NAMESPACE},
    dice::Dice,
    ledger::{is_attached, text},
    naming::Naming,
    nodes,
    process::{EXTERNAL_PROVISIONER, Life},
    replica::Replica,
    storage::{image_of, node_of},
};

/// What keeps a PersistentVolume until its volume is gone.
pub(crate) const PROTECTION: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// How long its calls may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How long a Lease that nobody renews stands.
const LEASE: Duration = Duration::from_secs(16);

struct ExternalProvisioner<'a> {
    core: &'a Core,
    replica: &'a Replica,
    life: Arc<Life>,
    dice: &'a Dice,
    naming: Naming,
}

/// Works for some time in the place of our program.
pub(crate) async fn take_turn(core: &Arc<Core>, replica: &Replica, number: u64, dice: &Dice) {
    let life = Life::of(
        &core.plan,
        &replica.host,
        &format!("{EXTERNAL_PROVISIONER} {}#{number}", replica.host),
    );
    core.ledger.log(&format!("{} starts", life.name()));
    replica.driver.backend().called_by(&life);
    let naming = Naming::of(core.plan.names, dice);
    life.names(naming);
    let process = ExternalProvisioner { core, replica, life: Arc::clone(&life), dice, naming };
    let _ = timeout(dice.stretch(2_000..60_000), process.lead()).await;
    life.kill();
    core.observe();
    core.ledger.log(&format!("{} is killed", life.name()));
    core.ledger.ended_external_provisioner(life.name());
}

impl ExternalProvisioner<'_> {
    async fn lead(&self) {
        let Some(identity) = self.life.elected_host() else { return self.work().await };
        self.win(identity).await;
        tokio::select! {
            biased;
            () = self.renew(identity) => {}
            () = self.work() => {}
        }
    }

    async fn win(&self, identity: &str) {
        let mut renewed = (String::new(), Instant::now());
        loop {
            sleep(Duration::from_secs(2)).await;
            let Some(lease) = self.core.api.list("Lease", "default").pop() else { continue };
            let version = text(&lease, "/metadata/resourceVersion");
            if renewed.0 != version {
                renewed = (version.to_owned(), Instant::now());
            }
            let free = text(&lease, "/spec/holderIdentity").is_empty();
            if free || renewed.1.elapsed() > LEASE {
                return self.hold(&lease, identity);
            }
        }
    }

    fn hold(&self, lease: &Value, identity: &str) {
        let time = self.core.api.now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let patch = json!({"spec": {"holderIdentity": identity, "renewTime": time}});
        let _ = self.core.api.merge("Lease", "default", text(lease, "/metadata/name"), &patch);
        self.core.observe();
    }

    /// Until somebody else holds the Lease.
    async fn renew(&self, identity: &str) {
        loop {
            sleep(Duration::from_secs(2)).await;
            let Some(lease) = self.core.api.list("Lease", "default").pop() else { return };
            if text(&lease, "/spec/holderIdentity") != identity {
                return;
            }
            self.hold(&lease, identity);
        }
    }

    async fn work(&self) {
        loop {
            sleep(self.dice.stretch(100..1_500)).await;
            for claim in self.core.api.list("PersistentVolumeClaim", NAMESPACE) {
                let _ = self.provision(&claim).await;
            }
            for volume in self.core.api.list("PersistentVolume", "") {
                self.delete(&volume).await;
            }
        }
    }

    async fn provision(&self, claim: &Value) -> Option<()> {
        let api = &self.core.api;
        let claim = api.get("PersistentVolumeClaim", NAMESPACE, text(claim, "/metadata/name"))?;
        let ours = text(&claim, "/metadata/annotations/volume.kubernetes.io~1storage-provisioner");
        let name = self.naming.name(text(&claim, "/metadata/uid"));
        let waits = text(&claim, "/spec/volumeName").is_empty()
            && claim["metadata"]["deletionTimestamp"].is_null()
            && ours == DRIVER
            // What is copied it leaves to ours.
            && claim["spec"]["dataSource"].is_null()
            && api.get("PersistentVolume", "", &name).is_none();
        let class = api.get("StorageClass", "", text(&claim, "/spec/storageClassName"))?;
        let unscheduled = class["volumeBindingMode"] == "WaitForFirstConsumer"
            && claim["metadata"]["annotations"][SELECTED_NODE].is_null();
        if !waits || unscheduled {
            return None;
        }
        let request = request(&name, &class, api.get("Secret", NAMESPACE, "key").as_ref())?;
        let call = Call { request, time_left: Some(TIMEOUT) };
        let answer = timeout(TIMEOUT, self.replica.driver.backend().create_volume(call)).await;
        let made = answer.ok()?.ok()?.volume?;
        sleep(self.dice.stretch(1..50)).await;
        if made.volume_id.is_empty() || made.capacity_bytes == 1 {
            return None;
        }
        let volume = volume(&name, &made.volume_id, &claim, &class);
        if api.create(&volume).is_ok() {
            let line = format!("{} saves {name}", self.life.name());
            self.core.ledger.log(&line);
            self.core.ledger.saved(self.life.name(), &name, &made.volume_id, true);
            self.core.observe();
        }
        Some(())
    }

    async fn delete(&self, volume: &Value) {
        let (name, handle) =
            (text(volume, "/metadata/name"), text(volume, "/spec/csi/volumeHandle"));
        let finalizers = volume["metadata"]["finalizers"].as_array();
        let is_held = finalizers.is_some_and(|them| them.iter().any(|it| it == PROTECTION));
        let is_done = volume["metadata"]["deletionTimestamp"].is_string() && !is_held;
        let due = text(volume, "/status/phase") == "Released"
            && !is_done
            && text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete"
            && text(volume, "/metadata/annotations/pv.kubernetes.io~1provisioned-by") == DRIVER;
        let volumes = self.core.api.list("PersistentVolume", "");
        let sharers =
            volumes.iter().filter(|other| text(other, "/spec/csi/volumeHandle") == handle).count();
        let current = self.core.api.get("PersistentVolume", "", name);
        let is_current = current.is_some_and(|current| current == *volume);
        if !due || !is_current || sharers > 1 || is_attached(&self.core.api, name) {
            return;
        }
        let request =
            DeleteVolumeRequest { volume_id: handle.to_owned(), ..DeleteVolumeRequest::default() };
        let call = Call { request, time_left: Some(TIMEOUT) };
        let answer = timeout(TIMEOUT, self.replica.driver.backend().delete_volume(call)).await;
        if matches!(answer, Ok(Ok(_))) {
            self.remove(volume);
        }
    }

    fn remove(&self, volume: &Value) {
        let (api, name) = (&self.core.api, text(volume, "/metadata/name"));
        let now = api.get("PersistentVolume", "", name).unwrap_or_default();
        if now["metadata"]["uid"] != volume["metadata"]["uid"] {
            return;
        }
        let _ = api.delete("PersistentVolume", "", name);
        let finalizers = now["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let left: Vec<_> = finalizers.into_iter().filter(|it| it != PROTECTION).collect();
        let _ = api.merge("PersistentVolume", "", name, &json!({"metadata": {"finalizers": left}}));
        self.core.ledger.log(&format!("{} removes {name}", self.life.name()));
        self.core.observe();
    }
}

/// What it asks the driver; none while a secret is missing.
fn request(name: &str, class: &Value, secret: Option<&Value>) -> Option<CreateVolumeRequest> {
    let mut parameters: BTreeMap<String, String> =
        serde_json::from_value(class["parameters"].clone()).unwrap_or_default();
    let needs_secret = parameters.contains_key("secret");
    if needs_secret && secret.is_none() {
        return None;
    }
    parameters.retain(|key, _| !key.starts_with("csi.storage.k8s.io/"));
    let secrets = if needs_secret { vec![("key".to_owned(), "right".to_owned())] } else { vec![] };
    Some(CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 }),
        parameters: parameters.into_iter().collect(),
        secrets: secrets.into_iter().collect(),
        ..CreateVolumeRequest::default()
    })
}

/// The PersistentVolume as a provisioner saves it.
pub(crate) fn volume(name: &str, handle: &str, claim: &Value, class: &Value) -> Value {
    let (metadata, node) = (&claim["metadata"], node_of(image_of(handle)));
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "finalizers": [PROTECTION],
                     "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": class["reclaimPolicy"],
            "storageClassName": class["metadata"]["name"],
            "nodeAffinity": node.map(nodes::affinity),
            "csi": {"driver": DRIVER, "volumeHandle": handle},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                         "namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]},
        },
    })
}
