//! The PersistentVolume controller of kube-controller-manager, as far as provisioners can observe it: what
//! it decides about one claim or one volume by what it sees of both. Pure.
//!
//! It binds claims that are being deleted like all others, takes a volume that stands free rather
//! than wait for one that is being made, binds no volume that is being deleted, releases a volume
//! whose claim has found another one, or takes the claim's UID off it where it is kept, and sets a claim's
//! provisioner to that of its class whatever stands there. Whether a claim is bound it reads off an
//! annotation, which the claim's user can write.

use std::sync::Arc;

use serde_json::{Value, json};
use testkit::apiserver::{ApiServer, object::Object};

use super::{cluster::SELECTED_NODE, ledger::text};

/// Says that a claim is bound, or has been.
pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The older name of a claim's class, which wins over the field.
pub(crate) const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const BETA_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";

/// The annotation that calls a claim's provisioner.
pub(crate) const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";

/// What it sees.
pub(crate) struct View {
    claims: Vec<Arc<Object>>,
    volumes: Vec<Arc<Object>>,
    classes: Vec<Arc<Object>>,
}

/// A merge patch of one object, for just the version that it was decided on.
pub(crate) struct Change {
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    pub patch: Value,
}

impl Change {
    fn of(kind: &'static str, object: &Value, mut patch: Value) -> Self {
        patch["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
        let (namespace, name) =
            (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned(), patch }
    }

    fn claim(claim: &Value, patch: Value) -> Self {
        Self::of("PersistentVolumeClaim", claim, patch)
    }

    fn volume(volume: &Value, patch: Value) -> Self {
        Self::of("PersistentVolume", volume, patch)
    }
}

/// Moves an object to a phase, unless it is in one of these.
fn phase(
    change: impl FnOnce(&Value, Value) -> Change,
    object: &Value,
    phase: &str,
    but: &[&str],
) -> Option<Change> {
    let now = text(object, "/status/phase");
    let patch = json!({"status": {"phase": phase}});
    (now != phase && !but.contains(&now)).then(|| change(object, patch))
}

pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["annotations"][key].as_str().unwrap_or_default()
}

fn is_terminating(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// The name of the claim's class; empty when it has none.
pub(crate) fn class_of(claim: &Value) -> &str {
    match annotation(claim, BETA_CLASS) {
        "" => text(claim, "/spec/storageClassName"),
        class => class,
    }
}

/// Whether the volume's `claimRef` names the claim, whose UID it may lack.
fn is_for(volume: &Value, claim: &Value) -> bool {
    let same = |reference: &str, metadata: &str| text(volume, reference) == text(claim, metadata);
    same("/spec/claimRef/namespace", "/metadata/namespace")
        && same("/spec/claimRef/name", "/metadata/name")
        && (text(volume, "/spec/claimRef/uid").is_empty()
            || same("/spec/claimRef/uid", "/metadata/uid"))
}

/// A size in bytes, of the few forms there are here.
fn bytes(size: &str) -> u64 {
    let (number, unit) = size.strip_suffix("Gi").map_or((size, 1), |number| (number, 1 << 30));
    number.parse::<u64>().map_or(u64::MAX, |number| number * unit)
}

/// Whether the volume may be bound to the claim that asks for it by name or finds it free.
fn suits(volume: &Value, claim: &Value) -> bool {
    let requested = bytes(text(claim, "/spec/resources/requests/storage"));
    !is_terminating(volume)
        && bytes(text(volume, "/spec/capacity/storage")) >= requested
        && text(volume, "/spec/storageClassName") == class_of(claim)
}

impl View {
    /// What there is now, but for claims of namespaces where another such controller works.
    pub(crate) fn of(api: &ApiServer, namespaces: &[&str]) -> Self {
        let mut claims = api.objects("PersistentVolumeClaim");
        claims.retain(|claim| namespaces.contains(&claim.meta("namespace")));
        let (volumes, classes) = (api.objects("PersistentVolume"), api.objects("StorageClass"));
        Self { claims, volumes, classes }
    }

    /// Everything that is to be done, at most one change of an object.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let volumes = self.volumes.iter().filter_map(|volume| self.about_volume(volume.value()));
        let claims = self.claims.iter().filter_map(|claim| self.about_claim(claim.value()));
        volumes.chain(claims).collect()
    }

    fn volume(&self, name: &str) -> Option<&Value> {
        let mut volumes = self.volumes.iter().map(|volume| volume.value());
        volumes.find(|volume| text(volume, "/metadata/name") == name)
    }

    /// The claim that the volume is bound to, where that one stands.
    fn claim_of(&self, volume: &Value) -> Option<&Value> {
        self.claims.iter().map(|claim| claim.value()).find(|claim| is_for(volume, claim))
    }

    fn about_volume(&self, volume: &Value) -> Option<Change> {
        if text(volume, "/spec/claimRef/uid").is_empty() {
            return phase(Change::volume, volume, "Available", &[]);
        }
        let Some(claim) = self.claim_of(volume) else {
            return phase(Change::volume, volume, "Released", &["Failed"]);
        };
        let named = text(claim, "/spec/volumeName");
        if named.is_empty() {
            return None;
        }
        if named == text(volume, "/metadata/name") {
            return phase(Change::volume, volume, "Bound", &[]);
        }
        let made_for_it = !annotation(volume, PROVISIONED_BY).is_empty();
        if made_for_it && text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete" {
            return phase(Change::volume, volume, "Released", &["Failed"]);
        }
        Some(Change::volume(volume, unbound(volume)))
    }

    fn about_claim(&self, claim: &Value) -> Option<Change> {
        let named = text(claim, "/spec/volumeName");
        let volume = self.volume(named);
        if annotation(claim, BIND_COMPLETED).is_empty() {
            return match volume {
                Some(volume) if volume["spec"]["claimRef"].is_null() && !suits(volume, claim) => {
                    None
                }
                Some(volume) if volume["spec"]["claimRef"].is_null() || is_for(volume, claim) => {
                    bind(volume, claim)
                }
                _ if !named.is_empty() => None,
                _ => match self.match_of(claim) {
                    Some(volume) => bind(volume, claim),
                    None => self.call_provisioner(claim),
                },
            };
        }
        let free = |volume: &&Value| volume["spec"]["claimRef"].is_null();
        let own =
            |volume: &&Value| text(volume, "/spec/claimRef/uid") == text(claim, "/metadata/uid");
        match volume.filter(|volume| free(volume) || own(volume)) {
            Some(volume) => bind(volume, claim),
            None => phase(Change::claim, claim, "Lost", &[]),
        }
    }

    fn class(&self, claim: &Value) -> Option<&Value> {
        let class = class_of(claim);
        let mut classes = self.classes.iter().map(|class| class.value());
        classes.find(|it| text(it, "/metadata/name") == class)
    }

    fn binds_late(&self, claim: &Value) -> bool {
        self.class(claim).is_some_and(|class| class["volumeBindingMode"] == "WaitForFirstConsumer")
    }

    /// The volume that is for the claim, or else one that stands free; for claims whose class binds
    /// late only the scheduler looks for such.
    fn match_of(&self, claim: &Value) -> Option<&Value> {
        let requested = bytes(text(claim, "/spec/resources/requests/storage"));
        let volumes = || self.volumes.iter().map(|volume| volume.value());
        let own = volumes().find(|volume| {
            is_for(volume, claim)
                && !is_terminating(volume)
                && bytes(text(volume, "/spec/capacity/storage")) >= requested
        });
        let is_free = |volume: &&Value| {
            volume["spec"]["claimRef"].is_null()
                && text(volume, "/status/phase") == "Available"
                && suits(volume, claim)
        };
        own.or_else(|| volumes().find(is_free).filter(|_| !self.binds_late(claim)))
    }

    fn call_provisioner(&self, claim: &Value) -> Option<Change> {
        let late =
            self.binds_late(claim) && claim["metadata"]["annotations"][SELECTED_NODE].is_null();
        let provisioner = self.class(claim).map(|class| text(class, "/provisioner"))?;
        let patch = json!({"metadata": {"annotations": {PROVISIONER: provisioner, BETA_PROVISIONER: provisioner}}});
        (!late && annotation(claim, PROVISIONER) != provisioner)
            .then(|| Change::claim(claim, patch))
    }
}

/// What unbinds a volume whose claim has found another one: one that was made for the claim stays
/// reserved for its name.
fn unbound(volume: &Value) -> Value {
    if annotation(volume, BOUND_BY_CONTROLLER).is_empty() {
        return json!({"spec": {"claimRef": {"uid": null}}});
    }
    json!({"metadata": {"annotations": {BOUND_BY_CONTROLLER: null}}, "spec": {"claimRef": null}})
}

/// The next of the four writes by which the two are bound.
fn bind(volume: &Value, claim: &Value) -> Option<Change> {
    let (name, metadata) = (text(volume, "/metadata/name"), &claim["metadata"]);
    if text(volume, "/spec/claimRef/uid") != text(claim, "/metadata/uid") {
        let mut patch = json!({"spec": {"claimRef": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": metadata["namespace"],
            "name": metadata["name"], "uid": metadata["uid"]}}});
        if volume["spec"]["claimRef"].is_null() {
            patch["metadata"] = json!({"annotations": {BOUND_BY_CONTROLLER: "yes"}});
        }
        return Some(Change::volume(volume, patch));
    }
    if let Some(change) = phase(Change::volume, volume, "Bound", &[]) {
        return Some(change);
    }
    if text(claim, "/spec/volumeName").is_empty() || annotation(claim, BIND_COMPLETED).is_empty() {
        let mut annotations = json!({BIND_COMPLETED: "yes"});
        if text(claim, "/spec/volumeName").is_empty() {
            annotations[BOUND_BY_CONTROLLER] = json!("yes");
        }
        let patch = json!({"metadata": {"annotations": annotations}, "spec": {"volumeName": name}});
        return Some(Change::claim(claim, patch));
    }
    let spec = &volume["spec"];
    let status =
        json!({"phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["capacity"]});
    (text(claim, "/status/phase") != "Bound")
        .then(|| Change::claim(claim, json!({"status": status})))
}
