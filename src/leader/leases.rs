//! Reads, watches and writes Leases.

use std::future::Future;

use futures::{
    StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use http::Method;
use k8s_openapi::{Resource as _, api::coordination::v1::Lease};
use kube::api::{Api, WatchEvent, WatchParams};

use crate::kube::{ApiError, Client, Kind, Name};

/// The server ends a watch after this time, in seconds.
const WATCH_SECONDS: u32 = 290;

/// The requests of an election.
pub trait Leases: Send + Sync {
    /// GET.
    fn get(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Lease, ApiError>> + Send;

    /// POST, or PUT of a Lease with a `resourceVersion`, which fails if that is outdated. May have been
    /// carried out although it failed here.
    fn write(&self, lease: &Lease) -> impl Future<Output = Result<Lease, ApiError>> + Send;

    /// Watches one Lease from a version on. The stream may end at any time, with or without an error.
    fn watch(
        &self,
        namespace: &str,
        name: &str,
        version: &str,
    ) -> BoxStream<'static, Result<WatchEvent<Lease>, ApiError>>;
}

// === impl Client ===

fn leases() -> Kind {
    Kind {
        group: Lease::GROUP.into(),
        version: Lease::VERSION.into(),
        plural: Lease::URL_PATH_SEGMENT.into(),
    }
}

impl Leases for Client {
    async fn get(&self, namespace: &str, name: &str) -> Result<Lease, ApiError> {
        let name = Name::namespaced(namespace, name)?;
        self.read(leases().object(name)).await
    }

    async fn write(&self, lease: &Lease) -> Result<Lease, ApiError> {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let (namespace, name) = (text(&lease.metadata.namespace), text(&lease.metadata.name));
        let name = Name::namespaced(&namespace, &name)?;
        let (method, path) = match lease.metadata.resource_version {
            None => (Method::POST, leases().collection(Some(&namespace))),
            Some(_) => (Method::PUT, leases().object(name)),
        };
        self.write_json(method, path, lease).await
    }

    fn watch(
        &self,
        namespace: &str,
        name: &str,
        version: &str,
    ) -> BoxStream<'static, Result<WatchEvent<Lease>, ApiError>> {
        let parameters = WatchParams::default()
            .fields(&format!("metadata.name={name}"))
            .timeout(WATCH_SECONDS)
            .disable_bookmarks();
        let (api, version) = (Api::<Lease>::namespaced(self.kube(), namespace), version.to_owned());
        stream::once(async move { api.watch(&parameters, &version).await })
            .try_flatten()
            .map(|event| match event {
                Ok(WatchEvent::Error(status)) => Err(ApiError::from(*status)),
                event => event.map_err(|error| ApiError::of_kube(error, &leases().resource())),
            })
            .boxed()
    }
}
