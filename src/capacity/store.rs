//! Access to the objects at the API server, in the version that it serves.
//!
//! A change is patched only onto the version for which it was made, and a deletion applies only to
//! that very object (UID precondition).

use std::sync::Arc;

use serde_json::Value;

use super::{Destination, labels::ObjectLabels, object::Object};
use crate::{
    kube::{
        ApiError, Client, EventHandler, Informer, InformerEvent, Name, Patch,
        objects::{StorageCapacity, StorageCapacityBeta},
    },
    metrics::Metrics,
    runtime::{Random, Tasks},
};

/// The API version that the server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// Kubernetes 1.24 and later.
    V1,
    /// Kubernetes 1.21 to 1.23.
    V1beta1,
}

impl Version {
    /// The newest version that the server serves.
    pub(super) async fn find(client: &Client) -> Result<Option<Self>, ApiError> {
        if client.serves::<StorageCapacity>().await? {
            return Ok(Some(Self::V1));
        }
        let beta = client.serves::<StorageCapacityBeta>().await?;
        Ok(beta.then_some(Self::V1beta1))
    }

    /// Its name, without the group.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        }
    }
}

/// Evaluates the expression with `$view` as the type of the store's version.
macro_rules! by_version {
    ($store:expr, $view:ident => $with:expr) => {
        match $store.destination.version {
            Version::V1 => {
                type $view = StorageCapacity;
                $with
            }
            Version::V1beta1 => {
                type $view = StorageCapacityBeta;
                $with
            }
        }
    };
}

/// Reads and writes our objects.
pub(super) struct Store {
    pub(super) client: Client,
    pub(super) destination: Destination,
    pub(super) labels: ObjectLabels,
}

impl Store {
    /// Creates an object.
    pub(super) async fn create(&self, body: &Value) -> Result<Object, ApiError> {
        let namespace = Some(&*self.destination.namespace);
        by_version!(self, V => self.client.create::<V>(namespace, body).await.map(kept))
    }

    /// Applies the merge patch if the object is still in the known version; `None` if it is gone.
    pub(super) async fn correct(
        &self,
        object: &Object,
        patch: Value,
    ) -> Result<Option<Object>, ApiError> {
        let name = Name::namespaced(&self.destination.namespace, &object.name)?;
        let patch = Patch::Merge(patch);
        match by_version!(self, V => self.client.patch::<V>(name, &patch).await.map(kept)) {
            Err(error) if error.is_not_found() => Ok(None),
            patched => patched.map(Some),
        }
    }

    /// Deletes this very object.
    pub(super) async fn delete(&self, object: &Object) -> Result<(), ApiError> {
        let name = Name::namespaced(&self.destination.namespace, &object.name)?;
        let uid = Some(object.uid.as_str());
        by_version!(self, V => self.client.delete::<V>(name, uid).await.map(drop))
    }

    /// Starts the watch of our objects.
    pub(super) fn watch(
        &self,
        tasks: &Tasks,
        random: Arc<dyn Random>,
        metrics: &Metrics,
        mut handler: impl EventHandler<StorageCapacity> + 'static,
    ) {
        let scope = self.destination.scope.clone().labelled(&self.labels.selector());
        by_version!(self, V => {
            let informer = Informer::new(&self.client, scope, random, metrics);
            let handler =
                move |event: InformerEvent<V>| handler.on_event(event.map(StorageCapacity::from));
            tasks.spawn_critical("watch of CSIStorageCapacities", informer.run(handler));
        });
    }
}

/// What is kept of an object.
fn kept(object: impl Into<StorageCapacity>) -> Object {
    object.into().into()
}
