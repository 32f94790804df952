//! Provisioning for CSI: claim and class become a CreateVolumeRequest, the answer becomes a
//! PersistentVolume, and a PersistentVolume becomes a DeleteVolumeRequest.
//!
//! Owns [`CsiProvisioner`], which implements the controller's [`Provisioner`] trait with one file
//! a concept: `request` (the checks before a call, in order), `keys`, `parameters`, `secrets`,
//! `access_modes`, `capabilities`, `data_source`, `defects` (of what the driver made),
//! `persistent_volume`, `deletion`, `reads` (what is shared of them), `attachments`, `topology` (where a volume may be),
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
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod in_tree;
mod keys;
mod names;
pub mod node_deployment;
mod parameters;
mod persistent_volume;
mod reads;
mod request;
mod secrets;
#[cfg(test)]
mod testing;
mod topology;

use std::{borrow::Cow, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::PersistentVolume;
use tokio::time::Instant;

pub use attachments::Attachments;
pub use ceph_rbd::CephRbd;
use data_source::{Copyable, NotUsed};
use defects::Defect;
pub use in_tree::reads_secret;
pub use names::VolumeNaming;
pub use reads::Reads;
use request::Prepared;
#[cfg(any(test, feature = "fuzzing"))]
pub use secrets::fuzz as secrets_fuzz;
use secrets::{NotText, SecretValues};
pub use topology::{Topology, TopologySettings};

use node_deployment::NodeDeployment;

use crate::{
    capacity::Refresher,
    controller::{
        classes::Classes,
        dependencies::index::Dependency,
        events::ClaimEvents,
        model::{
            source::{Source, SourceKind},
            unusable_volume::{Credentials, UnusableVolume},
        },
        ownership::class_of_volume,
        provisioner::{
            Failure, NotDeleted, NotSent, Outcome, ProvisionRequest, ProvisionedVolume,
            Provisioner, Turn,
        },
    },
    csi::{
        CREATE_VOLUME, CallError, Capabilities, Connection, DELETE_VOLUME, Driver, created_volume,
        proto,
        proto::{CreateVolumeRequest, DeleteVolumeRequest},
    },
    kube::{
        Client,
        objects::{Claim, View as _, Volume},
    },
    migration::Migration,
    source_protection,
    source_protection::{NamedSource, Protection, Unprotected},
};

/// How often the removal of a volume that cannot be used is tried at once, as in the original.
const DISCARD_TRIES: usize = 5;

/// The component of events that only this provisioner tells, as in the original.
pub const EVENT_COMPONENT: &str = "external-provisioner";

/// What flags and driver decide about provisioning, once, at the start.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // the flags have as many
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
    /// The feature gate `CephRBDExtensions`.
    pub ceph_rbd: CephRbd,
    /// The translation of in-tree classes and volumes, where the driver took over from a plugin.
    pub migration: Option<Migration>,
    /// The feature gate `CrossNamespaceVolumeDataSource`.
    pub cross_namespace_sources: bool,
    /// `--prevent-volume-mode-conversion`.
    pub prevent_volume_mode_conversion: bool,
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
pub struct CsiProvisioner(Arc<Deps>);

/// What a [`CsiProvisioner`] works with.
pub struct Deps {
    /// The driver.
    pub driver: Driver,
    /// Writes which node a claim is for.
    pub client: Client,
    /// Reads secrets, sources and classes of attributes.
    pub reads: Reads,
    /// The storage classes.
    pub classes: Classes,
    /// For a driver that attaches volumes: which ones are. Asked before a volume is deleted.
    pub attachments: Option<Attachments>,
    /// For a driver that knows of places: where volumes are asked to be.
    pub topology: Option<Topology>,
    /// Told when room may have been taken or given back.
    pub refresher: Refresher,
    /// This node among others, where each provisions for itself.
    pub node: Option<NodeDeployment>,
    /// Guards what volumes are made from.
    pub protection: Protection,
    /// Tells what only this provisioner has to tell, as [`EVENT_COMPONENT`].
    pub events: ClaimEvents,
    /// What flags and driver decide.
    pub settings: Settings,
}

/// What a `CreateVolume` needs, and what its answer is made into a PersistentVolume with.
#[derive(Debug)]
pub struct Request {
    prepared: Prepared,
    credentials: Credentials,
    /// For a class of the in-tree plugin: makes the PersistentVolume one, too.
    migration: Option<Migration>,
    /// How it is sent.
    connection: Connection,
}

/// What a `DeleteVolume` needs beside the volume.
#[derive(Debug)]
pub struct Removal {
    credentials: Credentials,
    /// The secret that they are from.
    secret: Option<Dependency>,
}

impl CsiProvisioner {
    /// Provisions with these.
    pub fn new(parts: Deps) -> Self {
        Self(Arc::new(parts))
    }

    /// Tells how the driver's room may have changed by a call.
    fn tell_room(&self, order: &ProvisionRequest, outcome: &Outcome) {
        match outcome {
            Outcome::Provisioned(made) => {
                let affinity =
                    made.volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
                let affinity = affinity.and_then(|affinity| affinity.required.as_ref());
                self.0.refresher.made(affinity, order.class.name());
            }
            _ => self.0.refresher.failed(order.class.name()),
        }
    }

    /// Checks the order and makes its request. Nothing is written: a node asks for free space with it.
    async fn check(&self, order: &mut ProvisionRequest) -> Result<Request, NotSent> {
        let named = self.source(order).await?;
        let (mut translated, migration) =
            self.0.settings.order_for_driver(order).map_err(|why| why.finished().lasting())?;
        let (reads, settings, topology) =
            (&self.0.reads, &self.0.settings, self.0.topology.as_ref());
        let prepared =
            request::prepare(reads, settings, topology, &mut translated, named.as_ref()).await;
        // What was pinned stays; the class is the cluster's own again.
        *order = ProvisionRequest { class: Arc::clone(&order.class), ..translated };
        let prepared = prepared?;
        let unsent = |why| Failure::new(why).awaiting(prepared.secret.source().cloned());
        let credentials = self.credentials(&prepared.secret, CREATE_VOLUME).map_err(unsent)?;
        let connection = self.0.driver.connection();
        Ok(Request { prepared, credentials, migration, connection })
    }

    /// Guards the request's source, last of all: what is refused or waits holds none. A claim that has
    /// lost the right to its source holds no more of it than before.
    async fn guarded(
        &self,
        order: &mut ProvisionRequest,
        request: Request,
    ) -> Result<Request, NotSent> {
        let source = request.prepared.source.as_ref();
        if let Some(source) = source.filter(|_| !request.prepared.is_forfeited) {
            match self.guard(order, source).await {
                Err(went @ (Unprotected::Gone(_) | Unprotected::PvTerminating(_))) => {
                    // Right after it was looked at. Another look says so in the usual words.
                    self.check(order).await?;
                    return Err(Failure::new(went).into());
                }
                guarded => guarded.map_err(Failure::new)?,
            }
        }
        order.source.clone_from(&request.prepared.source);
        Ok(Request { connection: self.0.driver.connection(), ..request })
    }

    /// Asks for the volume and judges the answer.
    async fn ask(&self, order: &ProvisionRequest, request: Request) -> Outcome {
        let volume = match self.call(&request).await {
            Ok(volume) => volume,
            Err(error) => {
                self.0.reads.failed(&request.prepared.read);
                let outcome = errors::create_outcome(&error, self.may_reschedule(order));
                return outcome.awaiting(&request.prepared.read);
            }
        };
        let Request { prepared, credentials, migration, .. } = request;
        match self.persistent_volume(order, &prepared, migration, &volume) {
            Ok(made) => {
                let handle = volume.volume_id;
                Outcome::Provisioned(Box::new(ProvisionedVolume {
                    volume: made,
                    handle,
                    credentials,
                }))
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
        let connection = request.connection.clone();
        let request = CreateVolumeRequest { secrets, ..request.prepared.request.clone() };
        let answer = self.0.driver.create_volume(connection, request, migrated).await;
        answer.and_then(created_volume)
    }

    /// The PersistentVolume for what the driver made, or why there can be none.
    fn persistent_volume(
        &self,
        order: &ProvisionRequest,
        prepared: &Prepared,
        migration: Option<Migration>,
        volume: &proto::Volume,
    ) -> Result<PersistentVolume, Defect> {
        if let Some(defect) = defects::find(prepared, volume) {
            return Err(defect);
        }
        let affinity = self.0.topology.as_ref().and_then(|_| topology::affinity(volume));
        let made = persistent_volume::build(&self.0.settings, order, prepared, volume, affinity);
        match migration {
            None => Ok(made),
            Some(migration) => migration.to_in_tree(made).map_err(Defect::Untranslatable),
        }
    }

    /// What the claim names as its source. That somebody else makes volumes from such a thing
    /// is told to the claim's user.
    async fn source(&self, order: &ProvisionRequest) -> Result<Option<Copyable>, NotSent> {
        let named = data_source::identify(&self.0.reads.client, &self.0.settings, order).await;
        named.map_err(|why| match why {
            NotUsed::Failed(failure) => NotSent::Failed(failure.finished()),
            NotUsed::LeftToPopulator { kind } => {
                self.0.events.left_to_populator(&order.claim);
                let reason = format!(
                    "data source ({kind}) is not handled by the provisioner, assuming an external populator will provision it"
                );
                NotSent::Ignored { reason }
            }
        })
    }

    /// Guards the source of a call that is about to begin. One that is open is followed also where
    /// its source is gone by now: the driver may have made the volume.
    async fn guard(&self, order: &ProvisionRequest, source: &Source) -> Result<(), Unprotected> {
        let (uid, named) = (order.claim.uid(), named_source(source));
        match self.0.protection.take(uid, &named, &source.uid).await {
            Err(Unprotected::Gone(_) | Unprotected::PvTerminating(_)) if order.source.is_some() => {
                Ok(())
            }
            guarded => guarded,
        }
    }

    /// Whether another node could help: the scheduler chose one, and the driver knows of places.
    fn may_reschedule(&self, order: &ProvisionRequest) -> bool {
        self.0.topology.is_some() && !order.selected_node.as_deref().unwrap_or_default().is_empty()
    }

    /// A secret's values as a call of this method carries them.
    fn credentials(
        &self,
        secret: &SecretValues,
        method: &'static str,
    ) -> Result<Credentials, CallError> {
        secret.credentials().map_err(|NotText| self.0.driver.unsendable(method))
    }

    /// Tries some times in a row to remove a volume, within one deadline and while that is safe.
    async fn remove_at_once(
        &self,
        request: DeleteVolumeRequest,
        is_safe: impl Fn() -> bool + Send + Sync,
    ) -> Result<(), CallError> {
        let began = Instant::now();
        let mut tries = 0;
        loop {
            tries += 1;
            let left = self.0.driver.timeout().saturating_sub(began.elapsed());
            match self.0.driver.delete_volume_within(left, request.clone()).await {
                Ok(_) => return Ok(()),
                Err(error) if tries == DISCARD_TRIES || !is_safe() => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Whether the volume is for this process to delete.
    ///
    /// # Errors
    /// Where that can't be judged.
    fn reaches(&self, volume: &Volume) -> Result<bool, Failure> {
        let Some(node) = &self.0.node else { return Ok(true) };
        node.reaches(self.0.settings.node_affinity(volume)?.as_deref())
    }

    /// Refuses while the volume is attached, as far as the driver attaches at all.
    fn check_detached(&self, volume: &str) -> Result<(), NotDeleted> {
        let Some(attachments) = &self.0.attachments else { return Ok(()) };
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
        &self.0.settings.driver_name
    }

    fn in_tree_name(&self) -> Option<&str> {
        self.0.settings.migration.map(Migration::in_tree_name)
    }

    fn volume_name(&self, claim_uid: &str) -> Result<String, Failure> {
        self.0.settings.naming.name(claim_uid)
    }

    async fn ready_to_create(&self) {
        // As in the original, a driver that attaches is not served without the right to see that.
        if let Some(attachments) = &self.0.attachments {
            attachments.begun().await;
        }
        if let Some(topology) = &self.0.topology {
            topology.listed().await;
        }
    }

    async fn ready_to_delete(&self) {
        if let Some(attachments) = &self.0.attachments {
            attachments.listed().await;
        }
    }

    fn node(&self) -> Option<&str> {
        self.0.node.as_ref().map(NodeDeployment::node)
    }

    async fn turn(&self, order: &ProvisionRequest) -> Turn {
        match &self.0.node {
            None => Turn::Ours,
            Some(node) => node.turn(self, order).await,
        }
    }

    fn lead(&self) {
        if let Some(attachments) = &self.0.attachments {
            attachments.list_anew();
        }
    }

    fn wait_among_peers(&self, claim_uid: &str) -> Duration {
        self.0.node.as_ref().map(|node| node.wait_among_peers(claim_uid)).unwrap_or_default()
    }

    fn secret_names(&self, order: &ProvisionRequest) -> Vec<String> {
        match self.0.settings.order_for_driver(order) {
            Ok((order, _)) => request::secret_names(&self.0.settings, &order),
            Err(_) => Vec::new(),
        }
    }

    fn can_send(&self, request: &Request) -> bool {
        request.connection.is_up()
    }

    fn forget(&self, claim_uid: &str) {
        if let Some(node) = &self.0.node {
            node.forget(claim_uid);
        }
    }

    async fn prepare(&self, order: &mut ProvisionRequest) -> Result<Request, NotSent> {
        let prepared = match self.check(order).await {
            Ok(request) => self.guarded(order, request).await,
            refused => refused,
        };
        if let Err(not_asked) = &prepared {
            self.0.reads.failed(not_asked.dependencies());
        }
        // As in the original: not after what another attempt may find otherwise.
        if prepared.as_ref().is_err_and(NotSent::is_finished) {
            self.0.refresher.failed(order.class.name());
        }
        prepared
    }

    fn release_source(&self, claim_uid: &str) {
        self.0.protection.closed(claim_uid);
    }

    fn call_ended(&self, claim_uid: &str) {
        self.0.protection.call_ended(claim_uid);
    }

    async fn create(&self, order: &ProvisionRequest, request: Request) -> Outcome {
        let outcome = self.ask(order, request).await;
        self.tell_room(order, &outcome);
        outcome
    }

    async fn discard(
        &self,
        leftover: &UnusableVolume,
        is_safe: impl Fn() -> bool + Send + Sync,
    ) -> Result<(), Failure> {
        let request = DeleteVolumeRequest {
            volume_id: leftover.handle.clone(),
            secrets: leftover.credentials.expose(),
        };
        self.remove_at_once(request, is_safe).await.map_err(|error| errors::call_failure(&error))
    }

    fn handle<'a>(&self, volume: &'a Volume) -> Option<Cow<'a, str>> {
        self.0.settings.handle(volume).ok()
    }

    fn key<'a>(&self, handle: &'a str) -> &'a str {
        self.0.settings.migration.map_or(handle, |migration| migration.key(handle))
    }

    /// Where that can't be judged, the attempt to delete it tells.
    fn should_delete(&self, volume: &Volume) -> bool {
        self.reaches(volume).unwrap_or(true)
    }

    /// The original reads the secret of an attached volume, too; nobody needs it then.
    async fn prepare_delete(&self, volume: &Volume) -> Result<Removal, NotDeleted> {
        let failed = NotDeleted::Failed;
        self.0.settings.handle(volume).map_err(failed)?;
        self.reaches(volume).map_err(failed)?;
        capabilities::check(&self.0.settings.capabilities).map_err(failed)?;
        self.check_detached(volume.name())?;
        let class = || {
            let class = self.0.classes.get(class_of_volume(volume));
            self.0.settings.class_for_deletion(volume, class)
        };
        let settings = &self.0.settings;
        let secret = deletion::secret(&self.0.reads, volume, class, settings.ceph_rbd)
            .await
            .map_err(failed)?;
        let credentials = self.credentials(&secret, DELETE_VOLUME).map_err(|unsent| {
            self.0.reads.failed(secret.source());
            failed(errors::call_failure(&unsent).awaiting(secret.source().cloned()))
        })?;
        Ok(Removal { credentials, secret: secret.source().cloned() })
    }

    async fn delete(&self, volume: &Volume, removal: Removal) -> Result<(), NotDeleted> {
        let handle = self.0.settings.handle(volume).map_err(NotDeleted::Failed)?;
        self.check_detached(volume.name())?;
        let request = DeleteVolumeRequest {
            volume_id: handle.into_owned(),
            secrets: removal.credentials.expose(),
        };
        let migrated = volume.spec.in_tree.is_some();
        let deleted = self.0.driver.delete_volume(request, migrated).await;
        deleted.map_err(|error| {
            self.0.reads.failed(&removal.secret);
            NotDeleted::Failed(errors::call_failure(&error))
        })?;
        let affinity = volume.spec.node_affinity.as_ref();
        self.0.refresher.deleted(affinity.and_then(|affinity| affinity.required.as_ref()));
        Ok(())
    }
}

/// The source as protection knows it.
fn named_source(source: &Source) -> NamedSource {
    let kind = match source.kind {
        SourceKind::Snapshot => source_protection::SourceKind::Snapshot,
        SourceKind::Claim => source_protection::SourceKind::Claim,
    };
    NamedSource { kind, namespace: source.namespace.clone(), name: source.name.clone() }
}
