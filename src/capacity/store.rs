//! Access to the objects at the API server.
//!
//! A change is patched only onto the version for which it was made, and a deletion applies only to
//! that very object (UID precondition). If PATCH is forbidden, a change is made by GET and PUT,
//! onto whatever version GET returns.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::{
    Destination,
    labels::ObjectLabels,
    object::{Correction, Object},
};
use crate::{
    kube::{
        ApiError, Client, Edit, Edited, EventHandler, Informer, Name, Patch, Scope,
        objects::StorageCapacity,
    },
    metrics::Metrics,
    runtime::{Random, Tasks},
};

/// Reads and writes our objects.
#[derive(Debug)]
pub(super) struct Store {
    client: Client,
    namespace: String,
    scope: Scope,
    labels: ObjectLabels,
    /// PATCH was forbidden. external-provisioner's role does not grant it.
    patch_refused: AtomicBool,
}

impl Store {
    pub(super) fn new(client: Client, destination: &Destination, labels: ObjectLabels) -> Self {
        Self {
            client,
            namespace: destination.namespace.clone(),
            scope: destination.scope.clone(),
            labels,
            patch_refused: AtomicBool::new(false),
        }
    }

    /// Creates an object.
    pub(super) async fn create(&self, body: &serde_json::Value) -> Result<Object, ApiError> {
        let created = self.client.create::<StorageCapacity>(Some(&self.namespace), body).await;
        created.map(Object::from)
    }

    /// Applies the changes if the object is still in the known version; `None` if it is gone.
    pub(super) async fn correct(
        &self,
        object: &Object,
        correction: &Correction,
    ) -> Result<Option<Object>, ApiError> {
        if !self.patch_refused.load(Ordering::Relaxed) {
            match self.patch(object, correction).await {
                Err(error) if error.is_not_found() => return Ok(None),
                Err(error) if error.is_forbidden() => {
                    self.patch_refused.store(true, Ordering::Relaxed);
                }
                outcome => return outcome.map(Some),
            }
        }
        let put = self.put(object, correction).await;
        if put.as_ref().is_err_and(ApiError::is_forbidden) {
            // Neither verb is granted: try PATCH first again, in case either is granted later.
            self.patch_refused.store(false, Ordering::Relaxed);
        }
        put
    }

    async fn patch(&self, object: &Object, correction: &Correction) -> Result<Object, ApiError> {
        let name = Name::namespaced(&self.namespace, &object.name)?;
        let patch = Patch::Merge(correction.patch(object));
        self.client.patch::<StorageCapacity>(name, &patch).await.map(Object::from)
    }

    async fn put(
        &self,
        object: &Object,
        correction: &Correction,
    ) -> Result<Option<Object>, ApiError> {
        let name = Name::namespaced(&self.namespace, &object.name)?;
        let edit = |raw: &mut serde_json::Value| {
            correction.write(raw);
            Edit::Write
        };
        match self.client.edit::<StorageCapacity>(name, &object.uid, edit).await? {
            Edited::Written(object) | Edited::Unchanged(object) => Ok(Some(object.into())),
            Edited::Gone => Ok(None),
        }
    }

    /// Deletes this very object.
    pub(super) async fn delete(&self, object: &Object) -> Result<(), ApiError> {
        let name = Name::namespaced(&self.namespace, &object.name)?;
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
        let scope = self.scope.clone().labelled(&self.labels.selector());
        let informer = Informer::new(&self.client, scope, random, metrics);
        tasks.spawn_critical("watch of CSIStorageCapacities", informer.run(on_event));
    }
}
