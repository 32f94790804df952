//! Provisioning for CSI: claim and class become a CreateVolumeRequest, the answer becomes a
//! PersistentVolume, and a PersistentVolume becomes a DeleteVolumeRequest.
//!
//! Owns [`CsiProvisioner`], which implements the controller's [`Provisioner`] trait with one file
//! a concept: `request` (the checks before a call, in order), `keys`, `parameters`, `secrets`,
//! `access_modes`, `capabilities`, `data_source`, `defects` (of what the driver made),
//! `persistent_volume`, `deletion`, `attachments`, `topology` (where a volume may be),
//! `node_deployment` (which node a claim or volume is for), `errors`, `names`, and Go's `os.Expand`
//! in `expand`. Promises that a retry of an open call
//! asks for the same, and that secrets go to the driver and nowhere else. Leaves when to call to
//! `controller`, and the connection to `csi`.

mod access_modes;
mod attachments;
mod capabilities;
mod ceph_rbd;
mod data_source;
mod defects;
mod deletion;
mod errors;
mod expand;
mod in_tree;
mod keys;
mod names;
pub mod node_deployment;
mod parameters;
mod persistent_volume;
mod request;
mod secrets;
#[cfg(test)]
mod testing;
mod topology;

use std::{borrow::Cow, sync::Arc};

use k8s_openapi::api::core::v1::PersistentVolume;
use tokio::time::Instant;

pub use attachments::Attachments;
pub use ceph_rbd::CephRbd;
use defects::Defect;
pub use names::VolumeNaming;
use request::Prepared;
pub use secrets::names_credentials;
use secrets::{NotText, SecretValues};
pub use topology::{Topology, TopologySettings};

use node_deployment::NodeDeployment;

use crate::{
    capacity::Refresher,
    controller::{
        classes::Classes,
        leftover::{Credentials, Leftover},
        ownership::class_of_volume,
        provisioner::{Failure, Made, NotAsked, NotDeleted, Order, Outcome, Provisioner, Turn},
    },
    csi::{
        CREATE_VOLUME, CallError, Capabilities, DELETE_VOLUME, Driver, created_volume,
        proto::{self, CreateVolumeRequest, DeleteVolumeRequest},
    },
    kube_api::{
        Client,
        views::{Claim, View as _, Volume},
    },
    migration::Migration,
};

/// How often the removal of a volume that cannot be used is tried at once, as in the original.
const DISCARD_TRIES: usize = 5;

/// What flags and driver decide about provisioning, once, at the start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The driver's name.
    pub driver_name: String,
    /// What the driver can do.
    pub capabilities: Capabilities,
    /// This process's identity, written into every volume's attributes (reference 2.5).
    pub identity: String,
    /// How PersistentVolumes are named.
    pub naming: VolumeNaming,
    /// `--default-fstype`.
    pub default_fs_type: String,
    /// `--extra-create-metadata`.
    pub extra_create_metadata: bool,
    /// `--controller-publish-readonly`.
    pub controller_publish_readonly: bool,
    /// The feature gate VolumeAttributesClass.
    pub volume_attributes_classes: bool,
    /// The feature gate CephRBDExtensions.
    pub ceph_rbd: CephRbd,
    /// The translation of in-tree classes and volumes, where the driver took over from a plugin.
    pub migration: Option<Migration>,
}

impl Settings {
    /// The VolumeAttributesClass that the claim names, where the feature is on.
    fn attributes_class<'a>(&self, claim: &'a Claim) -> Option<&'a str> {
        let name = claim.spec.volume_attributes_class_name.as_deref()?;
        (self.volume_attributes_classes && !name.is_empty()).then_some(name)
    }
}

/// Provisions with a CSI driver.
#[derive(Clone)]
pub struct CsiProvisioner {
    driver: Driver,
    client: Client,
    classes: Classes,
    /// For a driver that attaches volumes: which ones are.
    attachments: Option<Attachments>,
    /// For a driver that knows of places: where volumes are asked to be.
    topology: Option<Topology>,
    /// Told when room may have been taken or given back.
    refresher: Refresher,
    /// This node among others, where each provisions for itself.
    node: Option<Arc<NodeDeployment>>,
    settings: Arc<Settings>,
}

/// What a `CreateVolume` needs, and what its answer is made into a PersistentVolume with.
#[derive(Debug)]
pub struct Request {
    prepared: Prepared,
    credentials: Credentials,
    /// For a class of the in-tree plugin: makes the PersistentVolume one, too.
    migration: Option<Migration>,
}

/// What a `DeleteVolume` needs beside the volume.
#[derive(Debug)]
pub struct Removal {
    credentials: Credentials,
}

impl CsiProvisioner {
    /// Provisions with `driver`; secrets and attribute classes are read through `client`.
    /// `attachments` are asked before a volume is deleted, and `topology` before one is made, where
    /// there are any to ask. With a `node` it is for that node only.
    pub fn new(
        driver: Driver,
        client: Client,
        classes: Classes,
        attachments: Option<Attachments>,
        topology: Option<Topology>,
        node: Option<NodeDeployment>,
        settings: Settings,
    ) -> Self {
        let (node, settings) = (node.map(Arc::new), Arc::new(settings));
        let refresher = Refresher::default();
        Self { driver, client, classes, attachments, topology, refresher, node, settings }
    }

    /// The same with somebody who is told when room may have been taken or given back.
    #[must_use]
    pub fn telling(self, refresher: Refresher) -> Self {
        Self { refresher, ..self }
    }

    /// Tells how the driver's room may have changed by a call.
    fn tell_room(&self, order: &Order, outcome: &Outcome) {
        match outcome {
            Outcome::Provisioned(made) => {
                let affinity =
                    made.volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
                let affinity = affinity.and_then(|affinity| affinity.required.as_ref());
                self.refresher.made(affinity, order.class.name());
            }
            _ => self.refresher.failed(order.class.name()),
        }
    }

    /// Checks the order and makes its request.
    async fn check(&self, order: &mut Order) -> Result<Request, NotAsked> {
        data_source::check(&order.claim)?;
        let (mut translated, migration) = self.settings.order_for_driver(order)?;
        let topology = self.topology.as_ref();
        let prepared =
            request::prepare(&self.client, &self.settings, topology, &mut translated).await;
        // What was pinned stays; the class is the cluster's own again.
        *order = Order { class: Arc::clone(&order.class), ..translated };
        let prepared = prepared?;
        let credentials =
            self.credentials(&prepared.secret, CREATE_VOLUME).map_err(Failure::new)?;
        Ok(Request { prepared, credentials, migration })
    }

    /// Asks for the volume and judges the answer.
    async fn ask(&self, order: &Order, request: Request) -> Outcome {
        let volume = match self.call(&request).await {
            Ok(volume) => volume,
            Err(error) => {
                let outcome = errors::create_outcome(&error, self.may_reschedule(order));
                return outcome.awaiting(&request.prepared.sources);
            }
        };
        let Request { prepared, credentials, migration } = request;
        match self.persistent_volume(order, &prepared, migration, &volume) {
            Ok(made) => {
                let handle = volume.volume_id;
                Outcome::Provisioned(Box::new(Made { volume: made, handle, credentials }))
            }
            Err(defect) => {
                let leftover = defect.leftover(&prepared.request.name, &volume, credentials);
                Outcome::Unusable(Box::new(leftover))
            }
        }
    }

    /// Asks for the volume.
    async fn call(&self, request: &Request) -> Result<proto::Volume, CallError> {
        let secrets = request.credentials.expose();
        let migrated = request.migration.is_some();
        let request = CreateVolumeRequest { secrets, ..request.prepared.request.clone() };
        self.driver.create_volume(request, migrated).await.and_then(created_volume)
    }

    /// The PersistentVolume for what the driver made, or why there can be none.
    fn persistent_volume(
        &self,
        order: &Order,
        prepared: &Prepared,
        migration: Option<Migration>,
        volume: &proto::Volume,
    ) -> Result<PersistentVolume, Defect> {
        if let Some(defect) = defects::find(order, prepared, volume) {
            return Err(defect);
        }
        let affinity = self.topology.as_ref().and_then(|_| topology::affinity(volume));
        let made = persistent_volume::build(&self.settings, order, prepared, volume, affinity);
        match migration {
            None => Ok(made),
            Some(migration) => migration.to_in_tree(made).map_err(Defect::Untranslatable),
        }
    }

    /// Whether another node could help: the scheduler chose one, and the driver knows of places.
    fn may_reschedule(&self, order: &Order) -> bool {
        self.topology.is_some() && !order.selected_node.as_deref().unwrap_or_default().is_empty()
    }

    /// A secret's values as a call of this method carries them.
    fn credentials(
        &self,
        secret: &SecretValues,
        method: &'static str,
    ) -> Result<Credentials, CallError> {
        secret.credentials().map_err(|NotText| self.driver.unsendable(method))
    }

    /// Tries some times within one deadline to remove a volume.
    async fn remove_at_once(&self, request: DeleteVolumeRequest) -> Result<(), CallError> {
        let end = Instant::now() + self.driver.timeout();
        let mut tries = 0;
        loop {
            tries += 1;
            let left = end.saturating_duration_since(Instant::now());
            match self.driver.delete_volume_within(left, request.clone()).await {
                Ok(_) => return Ok(()),
                Err(error) if tries == DISCARD_TRIES || Instant::now() >= end => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Whether the volume is for this process to delete.
    ///
    /// # Errors
    /// Where that can't be judged.
    fn reaches(&self, volume: &Volume) -> Result<bool, Failure> {
        let Some(node) = &self.node else { return Ok(true) };
        node.reaches(self.settings.node_affinity(volume)?.as_deref())
    }

    /// Refuses while the volume is attached, as far as the driver attaches at all.
    fn check_detached(&self, volume: &str) -> Result<(), NotDeleted> {
        let Some(attachments) = &self.attachments else { return Ok(()) };
        match attachments.block(volume).map_err(NotDeleted::Failed)? {
            Some(node) => Err(NotDeleted::Attached { node }),
            None => Ok(()),
        }
    }
}

impl Provisioner for CsiProvisioner {
    type Removal = Removal;
    type Request = Request;

    fn name(&self) -> &str {
        &self.settings.driver_name
    }

    fn in_tree_name(&self) -> Option<&str> {
        self.settings.migration.map(Migration::in_tree_name)
    }

    fn volume_name(&self, claim_uid: &str) -> Result<String, Failure> {
        self.settings.naming.name(claim_uid)
    }

    async fn ready(&self) {
        if let Some(attachments) = &self.attachments {
            attachments.listed().await;
        }
        if let Some(topology) = &self.topology {
            topology.listed().await;
        }
    }

    fn node(&self) -> Option<&str> {
        self.node.as_ref().map(|node| node.node())
    }

    async fn turn(&self, order: &Order) -> Turn {
        match &self.node {
            None => Turn::Ours,
            Some(node) => node.turn(self, order).await,
        }
    }

    fn forget(&self, claim_uid: &str) {
        if let Some(node) = &self.node {
            node.forget(claim_uid);
        }
    }

    async fn prepare(&self, order: &mut Order) -> Result<Request, NotAsked> {
        let prepared = self.check(order).await;
        // As in the original: not after what another attempt may find otherwise.
        if matches!(&prepared, Err(refused) if !matches!(refused, NotAsked::Failed(_))) {
            self.refresher.failed(order.class.name());
        }
        prepared
    }

    async fn create(&self, order: &Order, request: Request) -> Outcome {
        let outcome = self.ask(order, request).await;
        self.tell_room(order, &outcome);
        outcome
    }

    async fn discard(&self, leftover: &Leftover) -> Result<(), Failure> {
        let request = DeleteVolumeRequest {
            volume_id: leftover.handle.clone(),
            secrets: leftover.credentials.expose(),
        };
        self.remove_at_once(request).await.map_err(Failure::new)
    }

    fn handle<'a>(&self, volume: &'a Volume) -> Option<Cow<'a, str>> {
        self.settings.handle(volume).ok()
    }

    fn key<'a>(&self, handle: &'a str) -> &'a str {
        self.settings.migration.map_or(handle, |migration| migration.key(handle))
    }

    /// Where that can't be judged, the attempt to delete it tells.
    fn should_delete(&self, volume: &Volume) -> bool {
        self.reaches(volume).unwrap_or(true)
    }

    /// The original reads the secret of an attached volume, too; nobody needs it then.
    async fn prepare_delete(&self, volume: &Volume) -> Result<Removal, NotDeleted> {
        let failed = NotDeleted::Failed;
        self.settings.handle(volume).map_err(failed)?;
        self.reaches(volume).map_err(failed)?;
        capabilities::check(&self.settings.capabilities).map_err(failed)?;
        self.check_detached(volume.name())?;
        let class = || {
            let class = self.classes.get(class_of_volume(volume));
            self.settings.class_for_deletion(volume, class)
        };
        let secret = deletion::secret(&self.client, volume, class, self.settings.ceph_rbd)
            .await
            .map_err(failed)?;
        let credentials = self
            .credentials(&secret, DELETE_VOLUME)
            .map_err(|unsent| failed(errors::call_failure(&unsent)))?;
        Ok(Removal { credentials })
    }

    async fn delete(&self, volume: &Volume, removal: Removal) -> Result<(), NotDeleted> {
        let handle = self.settings.handle(volume).map_err(NotDeleted::Failed)?;
        self.check_detached(volume.name())?;
        let request = DeleteVolumeRequest {
            volume_id: handle.into_owned(),
            secrets: removal.credentials.expose(),
        };
        let migrated = volume.spec.in_tree.is_some();
        let deleted = self.driver.delete_volume(request, migrated).await;
        deleted.map_err(|error| NotDeleted::Failed(errors::call_failure(&error)))?;
        let affinity = volume.spec.node_affinity.as_ref();
        self.refresher.deleted(affinity.and_then(|affinity| affinity.required.as_ref()));
        Ok(())
    }
}
