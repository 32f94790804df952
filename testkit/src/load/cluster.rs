//! What a run makes of a server: names of its own, and a namespace to work in.
//!
//! Owns the class, the binder and taking everything away again. Promises to touch in somebody's
//! cluster only what carries the run's label or name. Leaves the server to [`super::server`], the
//! run's claims to `traffic`, and what stands around them to `residents`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::{
    core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, PostParams},
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{task::JoinSet, time::sleep};

use super::{
    error::LoadError,
    objects::Family,
    options::Options,
    residents::{OTHERS, Residents, remove},
    server::Server,
    watches::claim_of,
};
use crate::{apiserver::serve::Served, binder, control_plane::TemporaryDirectory};

/// The label of everything a run makes.
const LABEL: &str = "load.testkit/run";

/// How often what is to go away is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// How many polls the last claims and volumes get to be deleted: a minute.
const LOOKS: usize = 120;

/// Objects on a page of a list.
const PAGE: u32 = 500;

// === Names ===

/// What everything of a run is called.
#[derive(Debug, Clone)]
pub(super) struct Names {
    run: String,
}

impl Names {
    /// Names that no other run has.
    #[allow(clippy::disallowed_methods)] // a name in a real cluster, no part of a simulation
    pub(super) fn new() -> Self {
        let now = jiff::Timestamp::now().as_millisecond();
        Self { run: format!("load-{now:x}-{:x}", std::process::id()) }
    }

    /// The run's own driver.
    pub(super) fn driver(&self) -> String {
        format!("{}.csi.example.com", self.run)
    }

    /// The label selector of everything of the run.
    pub(super) fn selector(&self) -> String {
        format!("{LABEL}={}", self.run)
    }

    /// What the names of all claims begin with.
    fn prefix(&self) -> String {
        format!("{}-", self.run)
    }
}

/// The class of the claims.
#[derive(Debug)]
struct Class {
    name: String,
    /// The driver it names.
    driver: String,
    /// Whether both are the run's own.
    is_ours: bool,
}

impl Class {
    /// The run's own class, or the cluster's class called `name`.
    async fn find(name: Option<&str>, names: &Names, client: &Client) -> Result<Self, LoadError> {
        let Some(name) = name else {
            return Ok(Self { name: names.run.clone(), driver: names.driver(), is_ours: true });
        };
        let classes: Api<StorageClass> = Api::all(client.clone());
        let class = classes.get_opt(name).await?;
        let class = class.ok_or_else(|| LoadError::NoClass(name.to_owned()))?;
        if class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer") {
            return Err(LoadError::ClassWaits(name.to_owned()));
        }
        Ok(Self { name: name.to_owned(), driver: class.provisioner, is_ours: false })
    }
}

// === Cluster ===

/// Where a run works.
pub(super) struct Cluster {
    pub(super) names: Names,
    pub(super) client: Client,
    pub(super) namespace: String,
    class: Class,
    pub(super) server: Arc<Server>,
    /// Whether nobody else binds claims.
    needs_binder: bool,
    binder: Mutex<JoinSet<()>>,
    /// The files of this run.
    pub(super) directory: TemporaryDirectory,
}

impl Cluster {
    /// A cluster on the server. Nothing is made in it yet.
    pub(super) async fn open(options: &Options, server: Arc<Server>) -> Result<Self, LoadError> {
        let directory = TemporaryDirectory::new().map_err(LoadError::Directory)?;
        let (client, names) = (server.client().await?, Names::new());
        let cluster = Self {
            class: Class::find(options.class.as_deref(), &names, &client).await?,
            names,
            client,
            namespace: server.namespace.clone(),
            needs_binder: server.is_ours() || options.binder,
            server,
            binder: Mutex::default(),
            directory,
        };
        cluster.check_namespace().await?;
        Ok(cluster)
    }

    /// From now on claims are bound and volumes released, where nobody else does it.
    pub(super) fn bind(&self) {
        if self.needs_binder {
            let settings = binder::Settings {
                selector: Some(OTHERS.to_owned()),
                ..binder::Settings::default()
            };
            self.binder.lock().spawn(binder::run(self.client.clone(), settings));
        }
    }

    /// From now on this process binds nothing any more.
    pub(super) fn stop_binding(&self) {
        self.binder.lock().abort_all();
    }

    async fn check_namespace(&self) -> Result<(), LoadError> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        match namespaces.get_opt(&self.namespace).await {
            Ok(None) => Err(LoadError::NoNamespace(self.namespace.clone())),
            // If it may not be read, the first claim fails.
            Ok(Some(_)) | Err(kube::Error::Api(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The claims of the run that are called after `what`, and their volumes.
    pub(super) fn family(&self, what: &str) -> Family {
        Family {
            driver: self.class.driver.clone(),
            class: self.class.name.clone(),
            namespace: self.namespace.clone(),
            prefix: format!("{}{what}-", self.names.prefix()),
            labels: BTreeMap::from([(LABEL.to_owned(), self.names.run.clone())]),
        }
    }

    pub(super) fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(super) fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    // === Before ===

    /// Makes the run's class, unless it uses the cluster's own, and the residents.
    pub(super) async fn furnish(&self, residents: &Residents) -> Result<(), LoadError> {
        if self.class.is_ours {
            let class = self.family("").storage_class(0);
            let classes: Api<StorageClass> = Api::all(self.client.clone());
            classes.create(&PostParams::default(), &for_creation(class)?).await?;
        }
        residents.settle(self).await
    }

    /// The embedded server, where it is one.
    pub(super) fn served(&self) -> Option<&Served> {
        self.server.in_memory()
    }

    /// Whether claims are bound by this process.
    pub(super) fn binds(&self) -> bool {
        self.needs_binder
    }

    // === After ===

    /// Takes away what the run has made; the provisioner must still be there. Events are left to
    /// the server, which drops them by itself.
    pub(super) async fn clean_up(&self, residents: &Residents) -> Result<(), LoadError> {
        residents.leave(self).await?;
        let ours = ListParams::default().labels(&self.names.selector());
        let claims = self.empty_of_claims(&ours).await;
        let volumes = self.last_volumes().await;
        if self.class.is_ours {
            let classes: Api<StorageClass> = Api::all(self.client.clone());
            classes.delete_collection(&DeleteParams::default(), &ours).await?;
        }
        claims.and(volumes)
    }

    /// Deletes claims until there are none, twice in a row: requests that were cut may still
    /// arrive.
    async fn empty_of_claims(&self, ours: &ListParams) -> Result<(), LoadError> {
        let (mut empty, mut left) = (0, 0);
        for _ in 0..LOOKS {
            self.claims().delete_collection(&DeleteParams::default(), ours).await?;
            sleep(POLL_INTERVAL).await;
            left = self.claims().list_metadata(ours).await?.items.len();
            empty = if left == 0 { empty + 1 } else { 0 };
            if empty == 2 {
                return Ok(());
            }
        }
        Err(self.left_behind(left, "PersistentVolumeClaims"))
    }

    pub(super) fn left_behind(&self, left: usize, kind: &'static str) -> LoadError {
        LoadError::LeftBehind { left, kind, prefix: self.names.prefix() }
    }

    /// Waits until the provisioner has deleted the claims' volumes. Those of the run's own driver,
    /// which keeps nothing, are removed by force in the end.
    async fn last_volumes(&self) -> Result<(), LoadError> {
        let mut left = self.volumes_of_claims().await?;
        for _ in 0..LOOKS {
            if left.is_empty() {
                return Ok(());
            }
            sleep(POLL_INTERVAL).await;
            left = self.volumes_of_claims().await?;
        }
        if !self.class.is_ours {
            return Err(self.left_behind(left.len(), "PersistentVolumes"));
        }
        for volume in left {
            remove(&self.volumes(), &volume).await?;
        }
        Ok(())
    }

    /// The names of the PersistentVolumes for the run's claims that a provisioner has made.
    async fn volumes_of_claims(&self) -> Result<Vec<String>, LoadError> {
        let mut page = ListParams::default().labels(OTHERS).limit(PAGE);
        let mut names = Vec::new();
        let prefix = self.names.prefix();
        loop {
            let volumes = self.volumes().list(&page).await?;
            let ours = volumes.items.iter().filter(|volume| {
                claim_of(volume, &self.namespace).is_some_and(|claim| claim.starts_with(&prefix))
            });
            names.extend(ours.map(kube::ResourceExt::name_any));
            match volumes.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(names),
            }
        }
    }
}

/// The object as a client creates it.
pub(super) fn for_creation<K: Resource + DeserializeOwned>(object: Value) -> Result<K, LoadError> {
    Ok(serde_json::from_value(without_identity(object))?)
}

/// The object without what only the server and its controllers give it.
fn without_identity(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["uid", "resourceVersion", "creationTimestamp", "finalizers"] {
            metadata.remove(field);
        }
    }
    object
}
