//! Provisioning for CSI: claim and class become a CreateVolumeRequest, the answer becomes a
//! PersistentVolume, and a PersistentVolume becomes a DeleteVolumeRequest.
//!
//! Owns [`CsiProvisioner`], which implements the controller's [`Provisioner`] trait with one file
//! a concept: `request` (the checks before a call, in order), `keys`, `parameters`, `secrets`,
//! `access_modes`, `capabilities`, `data_source`, `defects` (of what the driver made),
//! `persistent_volume`, `deletion`, `attachments`, `errors`, `names`, and Go's `os.Expand` in `expand`. Promises that a retry of an open call
//! asks for the same, and that secrets go to the driver and nowhere else. Leaves when to call to
//! `controller`, and the connection to `csi`.

mod access_modes;
mod attachments;
mod capabilities;
mod data_source;
mod defects;
mod deletion;
mod errors;
mod expand;
mod keys;
mod names;
mod parameters;
mod persistent_volume;
mod request;
mod secrets;
#[cfg(test)]
mod testing;

use std::sync::Arc;

use tokio::time::Instant;

pub use attachments::Attachments;
pub use names::VolumeNaming;
use request::Prepared;
pub use secrets::names_credentials;
use secrets::{NotText, SecretValues};

use crate::{
    controller::{
        classes::Classes,
        leftover::{Credentials, Leftover},
        ownership::class_of_volume,
        provisioner::{Failure, Made, NotAsked, NotDeleted, Order, Outcome, Provisioner},
    },
    csi::{
        CREATE_VOLUME, CallError, Capabilities, DELETE_VOLUME, Driver, created_volume,
        proto::{self, CreateVolumeRequest, DeleteVolumeRequest},
    },
    kube_api::{
        Client,
        views::{Claim, View as _, Volume},
    },
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
    settings: Arc<Settings>,
}

/// What a `CreateVolume` needs, and what its answer is made into a PersistentVolume with.
#[derive(Debug)]
pub struct Request {
    prepared: Prepared,
    credentials: Credentials,
}

/// What a `DeleteVolume` needs.
#[derive(Debug)]
pub struct Removal {
    /// The PersistentVolume's name.
    volume: String,
    handle: String,
    credentials: Credentials,
}

impl CsiProvisioner {
    /// Provisions with `driver`; secrets and attribute classes are read through `client`.
    /// `attachments` are asked before a volume is deleted, where there are any to ask.
    pub fn new(
        driver: Driver,
        client: Client,
        classes: Classes,
        attachments: Option<Attachments>,
        settings: Settings,
    ) -> Self {
        Self { driver, client, classes, attachments, settings: Arc::new(settings) }
    }

    /// Asks for the volume.
    async fn call(&self, request: &Request) -> Result<proto::Volume, CallError> {
        let secrets = request.credentials.expose();
        let request = CreateVolumeRequest { secrets, ..request.prepared.request.clone() };
        self.driver.create_volume(request).await.and_then(created_volume)
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

    /// Refuses while the volume is attached, as far as the driver attaches at all.
    fn check_detached(&self, volume: &str) -> Result<(), NotDeleted> {
        let Some(attachments) = &self.attachments else { return Ok(()) };
        match attachments.block(volume).map_err(NotDeleted::Failed)? {
            Some(node) => Err(NotDeleted::Attached { node }),
            None => Ok(()),
        }
    }

    /// The handle of a volume that this driver may be asked to delete.
    fn checked_handle<'a>(&self, volume: &'a Volume) -> Result<&'a str, Failure> {
        let source = volume.spec.csi.as_ref().ok_or_else(|| Failure::new("invalid CSI PV"))?;
        if source.driver != self.settings.driver_name {
            return Err(Failure::new(format!(
                "the volume belongs to the CSI driver {:?}, but its annotation names {:?}: it is not deleted",
                source.driver, self.settings.driver_name
            )));
        }
        capabilities::check(&self.settings.capabilities)?;
        Ok(&source.volume_handle)
    }
}

impl Provisioner for CsiProvisioner {
    type Removal = Removal;
    type Request = Request;

    fn name(&self) -> &str {
        &self.settings.driver_name
    }

    fn in_tree_name(&self) -> Option<&str> {
        None
    }

    fn volume_name(&self, claim_uid: &str) -> Result<String, Failure> {
        self.settings.naming.name(claim_uid)
    }

    async fn ready(&self) {
        if let Some(attachments) = &self.attachments {
            attachments.listed().await;
        }
    }

    async fn should_provision(&self, _claim: &Claim) -> bool {
        true
    }

    async fn prepare(&self, order: &mut Order) -> Result<Request, NotAsked> {
        data_source::check(&order.claim)?;
        let prepared = request::prepare(&self.client, &self.settings, order).await?;
        let credentials =
            self.credentials(&prepared.secret, CREATE_VOLUME).map_err(Failure::new)?;
        Ok(Request { prepared, credentials })
    }

    async fn create(&self, order: &Order, request: Request) -> Outcome {
        let volume = match self.call(&request).await {
            Ok(volume) => volume,
            Err(error) => {
                return errors::create_outcome(&error, false).awaiting(&request.prepared.sources);
            }
        };
        let Request { prepared, credentials } = request;
        if let Some(defect) = defects::find(order, &prepared, &volume) {
            let leftover = defect.leftover(&prepared.request.name, &volume, credentials);
            return Outcome::Unusable(Box::new(leftover));
        }
        let volume = persistent_volume::build(&self.settings, order, &prepared, &volume);
        Outcome::Provisioned(Box::new(Made { volume, credentials }))
    }

    async fn discard(&self, leftover: &Leftover) -> Result<(), Failure> {
        let request = DeleteVolumeRequest {
            volume_id: leftover.handle.clone(),
            secrets: leftover.credentials.expose(),
        };
        self.remove_at_once(request).await.map_err(Failure::new)
    }

    fn should_delete(&self, _volume: &Volume) -> bool {
        true
    }

    /// The original reads the secret of an attached volume, too; nobody needs it then.
    async fn prepare_delete(&self, volume: &Volume) -> Result<Removal, NotDeleted> {
        let failed = NotDeleted::Failed;
        let handle = self.checked_handle(volume).map_err(failed)?;
        self.check_detached(volume.name())?;
        let class = self.classes.get(class_of_volume(volume));
        let secret =
            deletion::secret(&self.client, volume, class.as_deref()).await.map_err(failed)?;
        let credentials = self
            .credentials(&secret, DELETE_VOLUME)
            .map_err(|unsent| failed(errors::call_failure(&unsent)))?;
        Ok(Removal { volume: volume.name().to_owned(), handle: handle.to_owned(), credentials })
    }

    async fn delete(&self, removal: Removal) -> Result<(), NotDeleted> {
        let Removal { volume, handle, credentials } = removal;
        self.check_detached(&volume)?;
        let request = DeleteVolumeRequest { volume_id: handle, secrets: credentials.expose() };
        let deleted = self.driver.delete_volume(request).await;
        deleted.map(drop).map_err(|error| NotDeleted::Failed(errors::call_failure(&error)))
    }
}
