//! A model of external-provisioner, which leads for a turn in between.
//!
//! It knows nothing of our records, and is killed at some await. What it leaves behind is not ours to
//! answer for. Coarse in what it does; its PersistentVolumes are as v6.3.0 writes them, from its description
//! and not by our code, but for the secrets that only others read.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Value, json};
use testkit::{
    binder::class_of,
    driver::{
        self, Backend as _, Call,
        proto::{
            CapacityRange, CreateVolumeRequest, DeleteVolumeRequest, Topology, TopologyRequirement,
        },
    },
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    cluster::SELECTED_NODE,
    core::{Core, DRIVER, NAMESPACE},
    dice::Dice,
    ledger::{is_attached, text},
    naming::Naming,
    nodes::ZONE,
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
        let mut request = request(&name, &class, api.get("Secret", NAMESPACE, "key").as_ref())?;
        if self.core.plan.topology {
            request.accessibility_requirements = requirement(&claim);
        }
        let call = Call { request, time_left: Some(TIMEOUT) };
        let answer = timeout(TIMEOUT, self.replica.driver.backend().create_volume(call)).await;
        let made = answer.ok()?.ok()?.volume?;
        sleep(self.dice.stretch(1..50)).await;
        if made.volume_id.is_empty() || made.capacity_bytes == 1 {
            return None;
        }
        let made = Made::answered(made);
        let volume = volume(&name, &made, &claim, &class);
        if api.create(&volume).is_ok() {
            let line = format!("{} saves {name}", self.life.name());
            self.core.ledger.log(&line);
            self.core.ledger.saved(self.life.name(), &name, &made.handle, true);
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

/// Where the volume is to be: at the node that was selected.
fn requirement(claim: &Value) -> Option<TopologyRequirement> {
    let node = claim["metadata"]["annotations"][SELECTED_NODE].as_str()?;
    let place = Topology { segments: [(ZONE.to_owned(), node.to_owned())].into_iter().collect() };
    Some(TopologyRequirement { requisite: vec![place.clone()], preferred: vec![place] })
}

/// What the driver has said of a volume.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub handle: String,
    /// Its size in bytes; the requested one where that is 0.
    pub bytes: i64,
    pub context: BTreeMap<String, String>,
    /// The places that reach it.
    pub places: Vec<BTreeMap<String, String>>,
}

impl Made {
    /// What it would have said of what it calls so.
    pub(crate) fn of(handle: &str) -> Self {
        let node = node_of(image_of(handle)).map(str::to_owned);
        let places = node.map(|node| BTreeMap::from([(ZONE.to_owned(), node)]));
        let (handle, places) = (handle.to_owned(), places.into_iter().collect());
        Self { handle, bytes: 1 << 30, places, ..Self::default() }
    }

    fn answered(volume: driver::proto::Volume) -> Self {
        let places = volume.accessible_topology.into_iter();
        Self {
            handle: volume.volume_id,
            bytes: volume.capacity_bytes,
            context: volume.volume_context.into_iter().collect(),
            places: places.map(|place| place.segments.into_iter().collect()).collect(),
        }
    }
}

/// The attribute that names the process which has provisioned a volume.
const IDENTITY: &str = "storage.kubernetes.io/csiProvisionerIdentity";

/// What a class's parameters say of secrets begins so.
const RESERVED: &str = "csi.storage.k8s.io/";

/// The PersistentVolume that v6.3.0 saves for what the driver has made.
pub(crate) fn volume(name: &str, made: &Made, claim: &Value, class: &Value) -> Value {
    let (spec, metadata) = (&claim["spec"], &claim["metadata"]);
    let requested = bytes(text(claim, "/spec/resources/requests/storage"));
    let size = if made.bytes == 0 { requested } else { made.bytes };
    without_nulls(json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "finalizers": [PROTECTION],
                     "annotations": annotations(name, claim, class)},
        "spec": {
            "accessModes": spec["accessModes"], "capacity": {"storage": quantity(size)},
            "mountOptions": class["mountOptions"], "volumeMode": spec["volumeMode"],
            "persistentVolumeReclaimPolicy": class["reclaimPolicy"],
            "storageClassName": class_of(claim),
            "nodeAffinity": affinity(&made.places), "csi": source(made, claim, class),
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                         "namespace": metadata["namespace"], "name": metadata["name"],
                         "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
        },
    }))
}

/// Those of the secret for the deletion are there even if there is none.
fn annotations(name: &str, claim: &Value, class: &Value) -> Value {
    let secret = secret(name, claim, class, "provisioner-secret").unwrap_or_default();
    json!({
        "pv.kubernetes.io/provisioned-by": class["provisioner"],
        "volume.kubernetes.io/provisioner-deletion-secret-name": secret.0,
        "volume.kubernetes.io/provisioner-deletion-secret-namespace": secret.1,
    })
}

fn source(made: &Made, claim: &Value, class: &Value) -> Value {
    let mut attributes = BTreeMap::from([(IDENTITY.to_owned(), format!("1-2-{DRIVER}"))]);
    attributes.extend(made.context.clone());
    let is_block = claim["spec"]["volumeMode"] == "Block";
    let fs_type = class["parameters"][format!("{RESERVED}fstype")].as_str();
    json!({
        "driver": DRIVER, "volumeHandle": made.handle, "volumeAttributes": attributes,
        "fsType": fs_type.filter(|_| !is_block),
    })
}

/// The name and namespace of the secret of a kind, as the class's templates say.
fn secret(volume: &str, claim: &Value, class: &Value, kind: &str) -> Option<(String, String)> {
    let part = |part: &str| {
        let template = class["parameters"][format!("{RESERVED}{kind}-{part}")].as_str()?;
        let template = template.replace("${pv.name}", volume);
        let template = template.replace("${pvc.name}", text(claim, "/metadata/name"));
        Some(template.replace("${pvc.namespace}", text(claim, "/metadata/namespace")))
    };
    Some((part("name")?, part("namespace")?))
}

/// Who reaches the volume; nothing without topology.
fn affinity(places: &[BTreeMap<String, String>]) -> Value {
    let is_in = |(key, value)| json!({"key": key, "operator": "In", "values": [value]});
    let terms = places.iter().map(|place| {
        let all: Vec<Value> = place.iter().map(is_in).collect();
        json!({"matchExpressions": all})
    });
    let terms: Vec<Value> = terms.collect();
    if terms.is_empty() {
        return Value::Null;
    }
    json!({"required": {"nodeSelectorTerms": terms}})
}

/// A size in bytes, of the few forms there are here.
fn bytes(size: &str) -> i64 {
    let (number, unit) = size.strip_suffix("Gi").map_or((size, 1), |number| (number, 1 << 30));
    number.parse::<i64>().map_or(0, |number| number * unit)
}

/// The same size as it is written.
fn quantity(bytes: i64) -> String {
    if bytes % (1 << 30) == 0 { format!("{}Gi", bytes >> 30) } else { bytes.to_string() }
}

/// Without fields that have no value.
fn without_nulls(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, value| !value.is_null());
        fields.values_mut().for_each(|value| *value = without_nulls(value.take()));
    }
    object
}
