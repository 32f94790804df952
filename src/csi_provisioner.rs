//! Provisioning for CSI: builds a CreateVolumeRequest from claim and class, a PersistentVolume from
//! the response, and a DeleteVolumeRequest from a PersistentVolume.
//!
//! [`CsiProvisioner`] implements the controller's [`Provisioner`] trait. Each concept has its file: `request`
//! (the checks before a call, in order), `keys`, `parameters`, `secrets`, `access_modes`, `capabilities`
//! (what the driver can do), `data_source`, `in_tree` (when to translate), `ceph_rbd` (a feature gate),
//! `defects` (of created volumes), `persistent_volume`, `deletion`, `reads` (shared reads), `attachments`,
//! `topology`, `node_deployment` (which node a claim or volume belongs to), `errors`, and Go's `os.Expand` in
//! `expand`. A retry of an open call sends the same request. Secrets are sent to the driver only. When to
//! call is decided by `controller`; the connection belongs to `csi`.

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
#[path = "../fuzz/bodies/csi_answer.rs"]
pub mod fuzz;
mod in_tree;
mod keys;
pub mod node_deployment;
mod parameters;
mod persistent_volume;
mod reads;
mod request;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "../fuzz/bodies/samples.rs"]
mod samples;
mod secrets;
#[cfg(test)]
mod testing;
mod topology;

use std::sync::Arc;

use tokio::time::Instant;

use crate::flags::VolumeNaming;
pub use attachments::Attachments;
use ceph_rbd::CephRbd;
pub use csi_translation::Migration;
use data_source::Copyable;
pub use defects::Defect;
pub use errors::is_infeasible;
pub use in_tree::reads_secret;
pub use persistent_volume::{IDENTITY, build_usable};
pub use reads::Reads;
pub use request::Prepared;
#[cfg(any(test, feature = "fuzzing"))]
pub use secrets::fuzz as secrets_fuzz;
use secrets::{NotUtf8, SecretValues};
pub use topology::Topology;

use node_deployment::NodeDeployment;

use crate::{
    capacity::Publisher,
    controller::{
        classes::Classes,
        events::Events,
        model::{
            source::Source,
            unusable_volume::{Credentials, UnusableVolume},
        },
        ownership::{ProvisionerIdentity, class_of_volume},
        provisioner::{
            Deleter, Failure, NotDeleted, NotPrepared, Outcome, ProvisionRequest,
            ProvisionedVolume, Provisioner, ShouldProvision, VolumeHandle,
        },
    },
    csi::{
        CREATE_VOLUME, CallError, Capabilities, Connection, DELETE_VOLUME, Driver, created_volume,
        proto,
        proto::{CreateVolumeRequest, DeleteVolumeRequest},
    },
    flags,
    flags::{Flags, Gates},
    kube::{
        Client,
        objects::{Claim, View as _, Volume},
    },
    source_protection::{Protection, Unprotected},
};

/// How often the deletion of an unusable volume is tried at once, as in external-provisioner.
const DISCARD_TRIES: usize = 5;

/// The component of events that only this provisioner emits, as in external-provisioner.
pub const EVENT_COMPONENT: &str = "external-provisioner";

/// Configuration of provisioning, from flags and the driver's capabilities.
#[derive(Debug, Clone)]
pub struct ProvisionerSettings {
    /// The driver, the API server and this process.
    pub driver: DriverFacts,
    /// The flags of provisioning.
    pub flags: flags::Provisioning,
    /// The feature gates.
    pub gates: Gates,
    /// How PersistentVolumes are named.
    pub naming: VolumeNaming,
    /// The translation of in-tree classes and volumes, if the driver took over from an in-tree
    /// plugin.
    pub migration: Option<Migration>,
}

/// What is known of the driver, of the API server and of this process, beside flags.
#[derive(Debug, Clone)]
pub struct DriverFacts {
    /// The driver's name.
    pub name: String,
    /// What the driver can do.
    pub capabilities: Capabilities,
    /// This process's identity.
    pub identity: String,
    /// Whether VolumeAttributesClasses are supported: by the gate, or by what the API server serves where
    /// the gate is not set.
    pub volume_attributes_classes: bool,
}

impl ProvisionerSettings {
    /// The settings by the flags, for this driver.
    pub fn new(flags: &Flags, driver: DriverFacts) -> Self {
        Self {
            migration: Migration::of_driver(&driver.name, flags.gates.csi_migration_rbd),
            driver,
            flags: flags.provisioning.clone(),
            gates: flags.gates,
            naming: flags.naming.clone(),
        }
    }

    /// The feature gate `CephRBDExtensions`.
    fn ceph_rbd(&self) -> CephRbd {
        CephRbd { enabled: self.gates.ceph_rbd_extensions }
    }

    /// The names of this provisioner on any node.
    pub fn provisioner_identity(&self) -> ProvisionerIdentity {
        ProvisionerIdentity {
            driver: self.driver.name.clone(),
            in_tree: self.migration.map(|migration| migration.in_tree_name().to_owned()),
            node: None,
            naming: self.naming.clone(),
        }
    }

    /// The volume with this ID of the driver.
    fn volume_handle(&self, id: String) -> VolumeHandle {
        VolumeHandle::with_key(id, |id| self.migration.map_or(id, |migration| migration.key(id)))
    }

    /// The VolumeAttributesClass of the claim, if the feature is on.
    fn attributes_class<'a>(&self, claim: &'a Claim) -> Option<&'a str> {
        let name = claim.spec.volume_attributes_class_name.as_deref()?;
        (self.driver.volume_attributes_classes && !name.is_empty()).then_some(name)
    }
}

/// Provisions with a CSI driver.
#[derive(Clone)]
pub struct CsiProvisioner(Arc<CsiProvisionerDeps>);

/// Dependencies of a [`CsiProvisioner`].
pub struct CsiProvisionerDeps {
    /// The driver.
    pub driver: Driver,
    /// Writes the selected node of a claim.
    pub client: Client,
    /// Reads secrets, sources and VolumeAttributesClasses.
    pub reads: Reads,
    /// The storage classes.
    pub classes: Classes,
    /// The VolumeAttachments, for a driver that attaches volumes; checked before a volume is
    /// deleted.
    pub attachments: Option<Attachments>,
    /// Computes the topology requirement, for a driver with topology.
    pub topology: Option<Topology>,
    /// Publishes capacity, with `--enable-capacity`.
    pub capacity: Option<Publisher>,
    /// This node, with `--node-deployment`.
    pub node: Option<NodeDeployment>,
    /// Protects sources of volumes.
    pub protection: Protection,
    /// Emits events as [`EVENT_COMPONENT`].
    pub events: Events,
    /// Configuration.
    pub settings: ProvisionerSettings,
}

/// A CreateVolume that passed all checks, with what is needed to build the PersistentVolume from
/// its response.
#[derive(Debug)]
pub struct PreparedCreate {
    prepared: Prepared,
    credentials: Credentials,
    /// The connection to send it on.
    connection: Connection,
}

/// The checks before a call, and what they need. They send and write nothing.
#[derive(Clone, Copy)]
pub struct Checks<'a> {
    /// Reads secrets, sources and VolumeAttributesClasses.
    pub reads: &'a Reads,
    /// Configuration.
    pub settings: &'a ProvisionerSettings,
    /// Computes the topology requirement, for a driver with topology.
    pub topology: Option<&'a Topology>,
}

impl Checks<'_> {
    /// Makes all checks for the request, and builds the request to the driver.
    ///
    /// # Errors
    /// The first check that failed.
    pub async fn all(self, request: &mut ProvisionRequest) -> Result<Prepared, NotPrepared> {
        let named = self.source(request).await?;
        self.build(request, named.as_ref()).await
    }

    /// The source that the claim names.
    async fn source(self, request: &ProvisionRequest) -> Result<Option<Copyable>, NotPrepared> {
        data_source::identify(self.reads, self.settings, request).await
    }

    /// Builds the request to the driver.
    async fn build(
        self,
        request: &mut ProvisionRequest,
        named: Option<&Copyable>,
    ) -> Result<Prepared, NotPrepared> {
        let Self { reads, settings, topology } = self;
        let translated = settings.request_for_driver(request);
        let (mut translated, migration) = translated.map_err(|why| why.finished().lasting())?;
        let prepared = request::build(reads, settings, topology, &mut translated, named).await;
        // The class must stay the cluster's own, not the translated one.
        *request = ProvisionRequest { class: Arc::clone(&request.class), ..translated };
        Ok(Prepared { migration, ..prepared? })
    }
}

impl CsiProvisioner {
    /// Creates a provisioner.
    pub fn new(deps: CsiProvisionerDeps) -> Self {
        Self(Arc::new(deps))
    }

    /// Triggers capacity updates after a call.
    fn refresh_capacity(&self, request: &ProvisionRequest, outcome: &Outcome) {
        let Some(capacity) = &self.0.capacity else { return };
        match outcome {
            Outcome::Provisioned(pv) => {
                let affinity = pv.volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
                let affinity = affinity.and_then(|affinity| affinity.required.as_ref());
                capacity.volume_created(affinity, request.class.name());
            }
            // It still takes room: `discard` asks once it does not.
            Outcome::Unusable(_) => {}
            _ => capacity.volume_failed(request.class.name()),
        }
    }

    /// Checks the claim and builds its request. Writes nothing: node deployment calls it to ask for
    /// free space.
    async fn check(&self, request: &mut ProvisionRequest) -> Result<PreparedCreate, NotPrepared> {
        let CsiProvisionerDeps { reads, settings, topology, .. } = &*self.0;
        let checks = Checks { reads, settings, topology: topology.as_ref() };
        let mut named = checks.source(request).await;
        if let Ok(Some(named)) = &mut named {
            named.late_for = self.0.protection.late_for(request.claim.uid());
        }
        if let Err(NotPrepared::Ignored { .. }) = &named {
            self.0.events.left_to_populator(&request.claim);
        }
        let prepared = checks.build(request, named?.as_ref()).await?;
        let unsent = |why| Failure::new(why).awaiting(prepared.secret.object().cloned());
        let credentials = self.credentials(&prepared.secret, CREATE_VOLUME).map_err(unsent)?;
        let connection = self.0.driver.connection();
        Ok(PreparedCreate { prepared, credentials, connection })
    }

    /// Protects the request's source. This is the last step, so that a request that fails or waits
    /// protects none. A claim that has lost access to its source does not extend its protection.
    async fn protect(
        &self,
        request: &mut ProvisionRequest,
        create: PreparedCreate,
    ) -> Result<PreparedCreate, NotPrepared> {
        let source = create.prepared.source.as_ref();
        if let Some(source) = source.filter(|_| !create.prepared.access_revoked) {
            match self.protect_source(request, source).await {
                Err(went @ (Unprotected::Gone(_) | Unprotected::Terminating(_))) => {
                    // Protection fails if the source has changed since it was read. Checking again
                    // produces the usual error.
                    self.0.reads.forget_source(&source.named);
                    self.check(request).await?;
                    return Err(Failure::new(went).into());
                }
                protected => protected.map_err(Failure::new)?,
            }
        }
        request.source.clone_from(&create.prepared.source);
        Ok(PreparedCreate { connection: self.0.driver.connection(), ..create })
    }

    /// Calls CreateVolume and evaluates the response.
    async fn ask(&self, request: &ProvisionRequest, create: PreparedCreate) -> Outcome {
        let volume = match self.call(&create).await {
            Ok(volume) => volume,
            Err(error) => return errors::create_outcome(&error, self.may_reschedule(request)),
        };
        let PreparedCreate { prepared, credentials, .. } = create;
        let built = persistent_volume::build_usable(&self.0.settings, request, &prepared, &volume);
        let handle = self.0.settings.volume_handle(volume.volume_id);
        match built {
            Ok(volume) => {
                let provisioned = ProvisionedVolume { volume, handle, credentials };
                Outcome::Provisioned(Box::new(provisioned))
            }
            Err(defect) => {
                let unusable = defect.unusable_volume(&prepared.request.name, handle, credentials);
                Outcome::Unusable(Box::new(unusable))
            }
        }
    }

    /// Calls CreateVolume.
    async fn call(&self, create: &PreparedCreate) -> Result<proto::Volume, CallError> {
        let secrets = create.credentials.expose();
        let migrated = create.prepared.migration.is_some();
        let connection = create.connection.clone();
        let request = CreateVolumeRequest { secrets, ..create.prepared.request.clone() };
        let answer = self.0.driver.create_volume(connection, request, migrated).await;
        answer.and_then(created_volume)
    }

    /// Protects the source of a call that is about to begin. An open call is continued even if the
    /// source is gone, because the driver may have created the volume.
    async fn protect_source(
        &self,
        request: &ProvisionRequest,
        source: &Source,
    ) -> Result<(), Unprotected> {
        let uid = request.claim.uid();
        match self.0.protection.protect(uid, &source.named, &source.uid).await {
            Err(Unprotected::Gone(_) | Unprotected::Terminating(_)) if request.source.is_some() => {
                Ok(())
            }
            protected => protected,
        }
    }

    /// Whether another node could help: the scheduler selected one, and the driver has topology.
    fn may_reschedule(&self, request: &ProvisionRequest) -> bool {
        self.0.topology.is_some()
            && !request.selected_node.as_deref().unwrap_or_default().is_empty()
    }

    /// A secret's values for a call of this method.
    fn credentials(
        &self,
        secret: &SecretValues,
        method: &'static str,
    ) -> Result<Credentials, CallError> {
        secret.credentials().map_err(|NotUtf8| self.0.driver.record_unsendable(method))
    }

    /// Tries several times in a row to delete a volume, within one deadline and while that is safe.
    async fn delete_with_retries(
        &self,
        request: DeleteVolumeRequest,
        is_safe: impl Fn() -> bool + Send + Sync,
    ) -> Result<(), CallError> {
        let began = Instant::now();
        let mut tries = 0;
        loop {
            tries += 1;
            let left = self.0.driver.timeout().saturating_sub(began.elapsed());
            match self.0.driver.delete_volume(request.clone(), false, Some(left)).await {
                Ok(_) => return Ok(()),
                Err(error) if tries == DISCARD_TRIES || !is_safe() => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Whether this process must delete the volume.
    ///
    /// # Errors
    /// Its node affinity can't be evaluated.
    fn reaches(&self, volume: &Volume) -> Result<bool, Failure> {
        let Some(node) = &self.0.node else { return Ok(true) };
        node.reaches(self.0.settings.node_affinity(volume)?.as_deref())
    }
}

impl Provisioner for CsiProvisioner {
    type Prepared = PreparedCreate;

    async fn should_provision(&self, request: &ProvisionRequest) -> ShouldProvision {
        match &self.0.node {
            None => ShouldProvision::Yes,
            Some(node) => node.should_provision(self, request).await,
        }
    }

    fn secret_names(&self, request: &ProvisionRequest) -> Vec<String> {
        match self.0.settings.request_for_driver(request) {
            Ok((request, _)) => request::secret_names(&self.0.settings, &request),
            Err(_) => Vec::new(),
        }
    }

    async fn prepare(&self, request: &mut ProvisionRequest) -> Result<PreparedCreate, NotPrepared> {
        let prepared = match self.check(request).await {
            Ok(create) => self.protect(request, create).await,
            refused => refused,
        };
        // As in external-provisioner: not if a retry may succeed.
        if prepared.as_ref().is_err_and(NotPrepared::is_finished)
            && let Some(capacity) = &self.0.capacity
        {
            capacity.volume_failed(request.class.name());
        }
        prepared
    }

    fn can_send(&self, create: &PreparedCreate) -> bool {
        create.connection.is_up()
    }

    async fn create(&self, request: &ProvisionRequest, create: PreparedCreate) -> Outcome {
        let outcome = self.ask(request, create).await;
        self.refresh_capacity(request, &outcome);
        outcome
    }
}

impl Deleter for CsiProvisioner {
    /// The `DeleteVolume`'s secrets.
    type PreparedDelete = Credentials;

    fn handle(&self, volume: &Volume) -> Option<VolumeHandle> {
        let id = self.0.settings.handle(volume).ok()?;
        Some(self.0.settings.volume_handle(id.into_owned()))
    }

    /// If that can't be decided, the deletion fails with the reason.
    fn should_delete(&self, volume: &Volume) -> bool {
        self.reaches(volume).unwrap_or(true)
    }

    fn check_detached(&self, volume: &Volume) -> Result<(), NotDeleted> {
        let Some(attachments) = &self.0.attachments else { return Ok(()) };
        match attachments.blocking_node(volume.name()).map_err(NotDeleted::Failed)? {
            Some(node) => Err(NotDeleted::Attached { node }),
            None => Ok(()),
        }
    }

    /// external-provisioner reads the secret of an attached volume, too, which is not needed.
    async fn prepare_delete(&self, volume: &Volume) -> Result<Credentials, NotDeleted> {
        let failed = NotDeleted::Failed;
        self.0.settings.handle(volume).map_err(failed)?;
        self.reaches(volume).map_err(failed)?;
        capabilities::check(&self.0.settings.driver.capabilities).map_err(failed)?;
        self.check_detached(volume)?;
        let class = || {
            let class = self.0.classes.get(class_of_volume(volume));
            self.0.settings.class_for_deletion(volume, class)
        };
        let settings = &self.0.settings;
        let secret = deletion::secret(&self.0.reads, volume, class, settings.ceph_rbd())
            .await
            .map_err(failed)?;
        self.credentials(&secret, DELETE_VOLUME)
            .map_err(|unsent| failed(errors::call_failure(&unsent)))
    }

    async fn delete(&self, volume: &Volume, credentials: Credentials) -> Result<(), NotDeleted> {
        let handle = self.0.settings.handle(volume).map_err(NotDeleted::Failed)?;
        self.check_detached(volume)?;
        let request =
            DeleteVolumeRequest { volume_id: handle.into_owned(), secrets: credentials.expose() };
        let migrated = volume.spec.in_tree.is_some();
        let deleted = self.0.driver.delete_volume(request, migrated, None).await;
        deleted.map_err(|error| NotDeleted::Failed(errors::call_failure(&error)))?;
        if let Some(capacity) = &self.0.capacity {
            let affinity = volume.spec.node_affinity.as_ref();
            capacity.volume_deleted(affinity.and_then(|affinity| affinity.required.as_ref()));
        }
        Ok(())
    }

    async fn discard(
        &self,
        request: &ProvisionRequest,
        unusable: &UnusableVolume,
        is_safe: impl Fn() -> bool + Send + Sync,
    ) -> Result<(), Failure> {
        let removal = DeleteVolumeRequest {
            volume_id: unusable.handle.id().to_owned(),
            secrets: unusable.credentials.expose(),
        };
        let removed = self.delete_with_retries(removal, is_safe).await;
        removed.map_err(|error| errors::call_failure(&error))?;
        if let Some(capacity) = &self.0.capacity {
            capacity.volume_failed(request.class.name());
        }
        Ok(())
    }
}
