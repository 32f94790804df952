//! Access to the objects at the API server.
//!
//! A change is patched only onto the version for which it was made, and a deletion applies only to
//! that very object (UID precondition).

use std::sync::Arc;

use serde_json::Value;

use super::{Destination, labels::ObjectLabels, object::Object};
use crate::{
    kube::{ApiError, Client, EventHandler, Informer, Name, Patch, objects::StorageCapacity},
    metrics::Metrics,
    runtime::{Random, Tasks},
};

/// Reads and writes our objects.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) client: Client,
    pub(super) destination: Destination,
    pub(super) labels: ObjectLabels,
}

impl Store {
    /// Creates an object.
    pub(super) async fn create(&self, body: &Value) -> Result<Object, ApiError> {
        let created =
            self.client.create::<StorageCapacity>(Some(&self.destination.namespace), body).await;
        created.map(Object::from)
    }

    /// Applies the merge patch if the object is still in the known version; `None` if it is gone.
    pub(super) async fn correct(
        &self,
        object: &Object,
        patch: Value,
    ) -> Result<Option<Object>, ApiError> {
        let name = Name::namespaced(&self.destination.namespace, &object.name)?;
        match self.client.patch::<StorageCapacity>(name, &Patch::Merge(patch)).await {
            Err(error) if error.is_not_found() => Ok(None),
            patched => patched.map(|object| Some(object.into())),
        }
    }

    /// Deletes this very object.
    pub(super) async fn delete(&self, object: &Object) -> Result<(), ApiError> {
        let name = Name::namespaced(&self.destination.namespace, &object.name)?;
        let uid = Some(object.uid.as_str());
        self.client.delete::<StorageCapacity>(name, uid).await.map(drop)
    }

    /// Starts the watch of our objects.
    pub(super) fn watch(
        &self,
        tasks: &Tasks,
        random: Arc<dyn Random>,
        metrics: &Metrics,
        on_event: impl EventHandler<StorageCapacity> + 'static,
    ) {
        let scope = self.destination.scope.clone().labelled(&self.labels.selector());
        let informer = Informer::new(&self.client, scope, random, metrics);
        tasks.spawn_critical("watch of CSIStorageCapacities", informer.run(on_event));
    }
}
