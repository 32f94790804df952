//! What tests change in a simulated cluster.

use serde_json::{Value, json};
use testkit::apiserver::{
    faults::{Effect, Faults, Rule},
    status::Status,
};

use super::{Simulation, claim, class, foreign_volume};

impl Simulation {
    /// The API server's faults.
    pub fn faults(&self) -> &Faults {
        self.api.faults()
    }

    /// Changes the driver's answers.
    pub fn script(&self, script: Value) {
        self.driver.backend().amend(serde_json::from_value(script).unwrap());
    }

    /// Creates an object; returns its UID.
    pub fn create(&self, object: &Value) -> String {
        let created = self.api.create(object).unwrap();
        created["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Puts another class with these fields in place of `fast`.
    pub fn replace_class(&self, fields: &Value) {
        self.api.delete("StorageClass", "", "fast").unwrap();
        self.create(&class("fast", fields));
    }

    /// Creates a claim of the class; returns its UID.
    pub fn create_claim(&self, name: &str) -> String {
        self.create(&claim(name))
    }

    /// Creates the claim `data` and waits until the driver is asked for its volume; returns its UID.
    pub async fn asked(&self) -> String {
        let uid = self.create_claim("data");
        self.until("the driver was asked", |s| s.calls("CreateVolume") == 1).await;
        uid
    }

    /// Creates the claim `data` and waits until its volume is saved; returns its UID.
    pub async fn served(&self) -> String {
        let uid = self.create_claim("data");
        self.until_saved(&uid).await;
        uid
    }

    /// Creates a claim that names a VolumeAttributesClass; returns its UID.
    pub fn create_claim_of(&self, name: &str, attributes_class: &str) -> String {
        let mut claim = claim(name);
        claim["spec"]["volumeAttributesClassName"] = json!(attributes_class);
        self.create(&claim)
    }

    /// Creates a VolumeAttributesClass.
    pub fn create_attributes_class(&self, name: &str, driver: &str, parameters: &Value) {
        let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
                           "metadata": {"name": name}, "driverName": driver, "parameters": parameters});
        self.create(&class);
    }

    /// Deletes a claim.
    pub fn delete_claim(&self, name: &str) {
        self.api.delete("PersistentVolumeClaim", "sc", name).unwrap();
    }

    /// Deletes the claim `data`, releases its volume, and waits until no PersistentVolume is left.
    pub async fn until_gone(&self, uid: &str) {
        self.delete_claim("data");
        self.release(uid);
        self.until("the volume is gone", |s| s.volumes().is_empty()).await;
    }

    /// Sets the claim's PersistentVolume to Released, as the cluster does once the claim is gone.
    pub fn release(&self, uid: &str) {
        self.phase(&format!("pvc-{uid}"), "Released");
    }

    /// Sets a PersistentVolume's phase, as the cluster does.
    pub fn phase(&self, name: &str, phase: &str) {
        let status = json!({"status": {"phase": phase}});
        self.api.merge("PersistentVolume", "", name, &status).unwrap();
    }

    /// Sets a PersistentVolume's reclaim policy to Retain.
    pub fn retain(&self, name: &str) {
        let retain = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
        self.api.merge("PersistentVolume", "", name, &retain).unwrap();
    }

    /// Writes the name of a PersistentVolume into a claim's specification, as the cluster does.
    pub fn bind(&self, claim: &str, volume: &str) {
        let bound = json!({"spec": {"volumeName": volume}});
        self.api.merge("PersistentVolumeClaim", "sc", claim, &bound).unwrap();
    }

    /// Takes all finalizers off a PersistentVolume.
    pub fn strip(&self, name: &str) {
        let bare = json!({"metadata": {"finalizers": null}});
        self.api.merge("PersistentVolume", "", name, &bare).unwrap();
    }

    /// Deletes the claim's PersistentVolume without regard to its finalizers.
    pub fn force_delete_volume(&self, uid: &str) {
        self.force_delete(&format!("pvc-{uid}"));
    }

    /// Deletes a PersistentVolume without regard to its finalizers.
    pub fn force_delete(&self, name: &str) {
        self.strip(name);
        self.api.delete("PersistentVolume", "", name).unwrap();
    }

    /// Makes a change that no watch of PersistentVolumes delivers, only the next list.
    pub fn unwatched(&self, change: impl FnOnce(&Self)) {
        self.api.watches().cut(Some("persistentvolumes"));
        change(self);
        self.create(&foreign_volume("passer-by", "nobody", "passer-by"));
        self.api.compact();
    }

    /// Answers so many requests with 403.
    pub fn refuse(&self, verb: &str, plural: &str, times: usize) {
        let kinds = self.api.kinds();
        let kind = kinds.iter().find(|kind| kind.plural == plural).unwrap();
        let forbidden = Status::forbidden(kind, "x", "no");
        self.faults().add(Rule::on(verb, plural, Effect::Answer(forbidden)).times(times));
    }

    /// Writes another holder into the Lease.
    pub fn overwrite_lease_holder(&self, holder: &str) {
        let lease = self.api.list("Lease", "default").pop().unwrap();
        let name = lease["metadata"]["name"].as_str().unwrap();
        let other = json!({"spec": {"holderIdentity": holder}});
        self.api.merge("Lease", "default", name, &other).unwrap();
    }
}
