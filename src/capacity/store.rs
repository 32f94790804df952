//! Access to the objects at the API server, in whichever version it serves them.
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
    names::Names,
    object::{AnyVersion, Correction, Object},
};
use crate::{
    kube::{
        ApiError, Client, Edit, Edited, EventHandler, Informer, InformerEvent, Name, Patch, Scope,
        View,
        objects::{StorageCapacity, StorageCapacityBeta},
    },
    metrics::Metrics,
    runtime::{Random, Tasks},
};

/// The versions of the kind that this program supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Kubernetes 1.24 and later.
    V1,
    /// Kubernetes 1.21 to 1.23.
    V1beta1,
}

impl Version {
    /// Returns the newest version that the server serves.
    pub(super) async fn find(client: &Client) -> Result<Option<Self>, ApiError> {
        if client.serves::<StorageCapacity>().await? {
            return Ok(Some(Self::V1));
        }
        let beta = client.serves::<StorageCapacityBeta>().await?;
        Ok(beta.then_some(Self::V1beta1))
    }

    /// The version without the group.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        }
    }
}

/// Reads and writes our objects.
#[derive(Debug)]
pub(super) struct Store {
    client: Client,
    version: Version,
    namespace: String,
    scope: Scope,
    names: Names,
    /// PATCH was forbidden. external-provisioner's role does not grant it.
    patch_refused: AtomicBool,
}

/// Evaluates the expression with `$view` as the type for the version.
macro_rules! by_version {
    ($version:expr, $view:ident => $with:expr) => {
        match $version {
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

impl Store {
    pub(super) fn new(client: Client, destination: &Destination, names: Names) -> Self {
        Self {
            client,
            version: destination.version,
            namespace: destination.namespace.clone(),
            scope: destination.scope.clone(),
            names,
            patch_refused: AtomicBool::new(false),
        }
    }

    /// Creates an object.
    pub(super) async fn create(&self, body: &serde_json::Value) -> Result<Object, ApiError> {
        let namespace = Some(&*self.namespace);
        by_version!(self.version, V => self.client.create::<V>(namespace, body).await.map(into_object))
    }

    /// Reads the object of that name; `None` if it is not ours.
    pub(super) async fn find(&self, name: &str) -> Result<Option<Object>, ApiError> {
        let name = Name::namespaced(&self.namespace, name)?;
        let object: AnyVersion =
            by_version!(self.version, V => self.client.get::<V>(name).await.map(Into::into))?;
        Ok(object.is_ours(&self.names).then(|| object.into_object()))
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
        by_version!(self.version, V => self.client.patch::<V>(name, &patch).await.map(into_object))
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
        by_version!(self.version, V => match self.client.edit::<V>(name, &object.uid, edit).await? {
            Edited::Written(object) | Edited::Unchanged(object) => Ok(Some(into_object(object))),
            Edited::Gone => Ok(None),
        })
    }

    /// Deletes this very object.
    pub(super) async fn delete(&self, object: &Object) -> Result<(), ApiError> {
        let name = Name::namespaced(&self.namespace, &object.name)?;
        let uid = Some(object.uid.as_str());
        by_version!(self.version, V => self.client.delete::<V>(name, uid).await.map(drop))
    }

    /// Starts the watch of our objects.
    pub(super) fn watch(
        &self,
        tasks: &Tasks,
        random: Arc<dyn Random>,
        metrics: &Metrics,
        on_event: impl FnMut(InformerEvent<AnyVersion>) + Send + 'static,
    ) {
        let scope = self.scope.clone().labelled(&self.names.selector());
        by_version!(self.version, V => {
            let informer = Informer::<V>::new(&self.client, scope, random, metrics);
            tasks.spawn_critical("watch of CSIStorageCapacities", informer.run(adapt(on_event)));
        });
    }
}

fn into_object(object: impl Into<AnyVersion>) -> Object {
    object.into().into_object()
}

/// Adapts an event handler to one version.
fn adapt<V: View + Into<AnyVersion>>(
    mut on_event: impl FnMut(InformerEvent<AnyVersion>) + Send,
) -> impl EventHandler<V> {
    move |event: InformerEvent<V>| on_event(event.map(Into::into))
}
