//! Reads a claim or a volume, and what its fate depends on.
//!
//! A thin loop of reads: what follows from them is decided by [`claim`](super::claim) and
//! [`volume`](super::volume). The checks before a call are run here, as they read for themselves.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Event;

use super::{
    Object, Request,
    leader::{self, Leader},
    report::{Cause, Explanation, State},
};
use csi_provisioner::{
    controller::{
        claims::verification::{Found, judge},
        ownership::{self, ProvisionerIdentity},
        provisioner::{Failure, NotPrepared, ProvisionRequest},
    },
    csi::{
        Capabilities,
        proto::{
            controller_service_capability::rpc::Type as Rpc,
            plugin_capability::service::Type as Service,
        },
    },
    csi_provisioner::{Attachments, Checks, DriverFacts, ProvisionerSettings, Reads, Topology},
    kube::{
        BadName, Client, InformerEvent, Name, Scope,
        objects::{Claim, CsiNode, Node, StorageClass, View, Volume, VolumeAttachment},
    },
    nodes::Nodes,
    runtime::{Tasks, TokioSpawner},
    status::Status,
};

use crate::{
    connection::list,
    objects::events_about,
    preview::{Preview, preview},
};

/// The namespace of events about objects without a namespace.
const EVENTS_OF_CLUSTER: &str = "default";

/// What a read came to: the object, `None` if it does not exist, or why it cannot be read.
pub(super) type Read<T> = Result<Option<T>, String>;

/// What was read about a claim.
#[derive(Debug)]
pub(super) struct ObservedClaim {
    pub(super) now: jiff::Timestamp,
    pub(super) claim: Arc<Claim>,
    /// The names of this provisioner; `None` if neither the claim nor its class names a driver.
    pub(super) identity: Option<ProvisionerIdentity>,
    pub(super) class: Read<Arc<StorageClass>>,
    /// The PersistentVolume that the claim names.
    pub(super) bound: Read<Volume>,
    /// The PersistentVolume under the name that the claim's would get.
    pub(super) named: Result<Found, String>,
    /// What a new leader would do.
    pub(super) preview: Option<Preview>,
    /// The result of the checks before a call.
    pub(super) checks: Option<Result<(), NotPrepared>>,
    pub(super) events: Result<Vec<Event>, String>,
    pub(super) leader: Leader,
}

/// What was read about a volume.
#[derive(Debug)]
pub(super) struct ObservedVolume {
    pub(super) now: jiff::Timestamp,
    pub(super) volume: Volume,
    /// The names of this provisioner; `None` if the volume names no driver.
    pub(super) identity: Option<ProvisionerIdentity>,
    /// Whether the driver can be asked to delete it.
    pub(super) handle: Result<(), Failure>,
    /// The node that it is attached to.
    pub(super) attached: Read<String>,
    pub(super) events: Result<Vec<Event>, String>,
    pub(super) leader: Leader,
}

/// Reads what an explanation needs.
pub(super) struct Reader<'a> {
    pub(super) client: &'a Client,
    pub(super) request: &'a Request,
    /// The namespace of the Lease; empty if unknown.
    pub(super) lease_namespace: &'a str,
    pub(super) now: jiff::Timestamp,
}

impl Reader<'_> {
    /// Reads about a claim. Without the claim nothing can be explained.
    pub(super) async fn claim(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<ObservedClaim, Explanation> {
        let claim: Claim = self.object(Name::namespaced(namespace, name)).await?;
        let claim = Arc::new(claim);
        let class = self.class(&claim).await;
        let driver = self.driver_of_claim(&claim, found(&class));
        let query = format!("claim={namespace}/{name}");
        let leader = self.leader(driver.as_deref(), &query).await;
        let settings = driver.map(|driver| self.settings(&driver, leader.of_leader()));
        let identity = settings.as_ref().map(ProvisionerSettings::provisioner_identity);
        let volume_name = match &settings {
            Some(settings) => settings.naming.name(claim.uid()),
            None => Ok(format!("pvc-{}", claim.uid())),
        };
        let preview =
            identity.as_ref().and_then(|identity| preview(identity, &claim, found(&class)));
        let request = preview.as_ref().and_then(|preview| preview.request().cloned());
        let checks = match (&settings, request) {
            (Some(settings), Some(request)) => Some(self.check(settings, request).await),
            _ => None,
        };
        Ok(ObservedClaim {
            now: self.now,
            bound: self.bound(&claim).await,
            named: self.named(&claim, &volume_name).await,
            events: self.events(namespace, "PersistentVolumeClaim", &*claim).await,
            claim,
            identity,
            class,
            preview,
            checks,
            leader,
        })
    }

    /// Reads about a volume. Without the PersistentVolume nothing can be explained.
    pub(super) async fn volume(&self, name: &str) -> Result<ObservedVolume, Explanation> {
        let volume: Volume = self.object(Name::cluster(name)).await?;
        let driver = self.driver_of_volume(&volume);
        let leader = self.leader(driver.as_deref(), &format!("volume={name}")).await;
        let settings = driver.map(|driver| self.settings(&driver, leader.of_leader()));
        Ok(ObservedVolume {
            now: self.now,
            identity: settings.as_ref().map(ProvisionerSettings::provisioner_identity),
            handle: settings.map_or(Ok(()), |settings| settings.handle(&volume).map(drop)),
            attached: self.attached(&volume).await,
            events: self.events(EVENTS_OF_CLUSTER, "PersistentVolume", &volume).await,
            volume,
            leader,
        })
    }

    /// Reads the object that is to be explained.
    async fn object<V: View>(&self, name: Result<Name<'_>, BadName>) -> Result<V, Explanation> {
        let read = match name {
            Ok(name) => self.client.get_opt(name).await,
            Err(error) => Err(error.into()),
        };
        let cause = match read {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => self.missing(),
            Err(why) => Cause::new(State::Unknown, format!("It cannot be read: {why}")),
        };
        Err(Explanation::new(&self.request.object.to_string(), cause))
    }

    fn missing(&self) -> Cause {
        let advice = match self.request.object {
            Object::Claim(..) => "Check the name and --namespace.",
            Object::Volume(_) => {
                "Check the name. A PersistentVolume whose volume was deleted is gone."
            }
        };
        Cause::new(State::Unknown, "It does not exist.").advise(advice)
    }

    /// The claim's class. It is listed, as the provisioner itself has no right to get it.
    async fn class(&self, claim: &Claim) -> Read<Arc<StorageClass>> {
        let name = ownership::class_of_claim(claim);
        if name.is_empty() {
            return Ok(None);
        }
        let listed: Vec<StorageClass> = self.all(&Scope::all().named(name)).await?;
        Ok(listed.into_iter().find(|class| class.name() == name).map(Arc::new))
    }

    /// The flag's driver, else the one that the claim or its class names.
    fn driver_of_claim(&self, claim: &Claim, class: Option<&Arc<StorageClass>>) -> Option<String> {
        let named =
            ownership::driver_of_claim(claim).or_else(|| class.map(|it| it.provisioner.as_str()));
        self.request.driver.as_deref().or(named).map(str::to_owned)
    }

    /// The flag's driver, else the one that the volume names, by the annotation that decides whose it is.
    fn driver_of_volume(&self, volume: &Volume) -> Option<String> {
        let migrated = volume.annotation("pv.kubernetes.io/migrated-to");
        let annotated = migrated.or_else(|| volume.annotation(ownership::PROVISIONED_BY));
        let named = annotated.or_else(|| ownership::driver_of_volume(volume));
        self.request.driver.as_deref().or(named).map(str::to_owned)
    }

    /// Who leads. `query` chooses what the status lists, by the name of an object that was read.
    async fn leader(&self, driver: Option<&str>, query: &str) -> Leader {
        let flags = &self.request.flags;
        // With node deployment there is a process on each node, and no Lease.
        let lease = match driver.filter(|_| flags.node_deployment().is_none()) {
            Some(driver) => {
                Some(leader::read_lease(self.client, self.lease_namespace, driver, self.now).await)
            }
            None => None,
        };
        let status = leader::ask(flags.http.status.as_deref(), query).await;
        Leader { lease, status }
    }

    /// The settings of the controller for this driver.
    fn settings(&self, driver: &str, status: Option<&Status>) -> ProvisionerSettings {
        let flags = &self.request.flags;
        let facts = DriverFacts {
            name: driver.to_owned(),
            capabilities: status.map_or_else(all_capabilities, capabilities),
            identity: String::new(),
            volume_attributes_classes: flags.gates.volume_attributes_class.unwrap_or(true),
        };
        ProvisionerSettings::new(flags, facts)
    }

    /// Makes the checks before a call.
    async fn check(
        &self,
        settings: &ProvisionerSettings,
        mut request: ProvisionRequest,
    ) -> Result<(), NotPrepared> {
        let (tasks, _ended) = Tasks::new(Arc::new(TokioSpawner));
        let reads = Reads::new(self.client.clone(), &tasks);
        let topology = self.topology(settings).await.map_err(Failure::new)?;
        let checks = Checks { reads: &reads, settings, topology: topology.as_ref() };
        checks.all(&mut request).await.map(drop)
    }

    /// The cluster's topology, if the driver has one. With node deployment each node has its own.
    async fn topology(&self, settings: &ProvisionerSettings) -> Result<Option<Topology>, String> {
        let flags = &self.request.flags;
        let is_supported =
            settings.driver.capabilities.plugin.contains(&Service::VolumeAccessibilityConstraints);
        if !flags.gates.topology || flags.node_deployment().is_some() || !is_supported {
            return Ok(None);
        }
        let csi_nodes: Vec<CsiNode> = self.all(&Scope::all()).await?;
        let drivers = csi_nodes.iter().flat_map(|node| &node.spec.drivers);
        let mut own = drivers.filter(|driver| driver.name == settings.driver.name);
        // Without the driver's own word, its topology keys show that it has a topology.
        let is_assumed = settings.driver.capabilities == all_capabilities();
        if is_assumed && !own.any(|driver| !driver.topology_keys.is_empty()) {
            return Ok(None);
        }
        let nodes: Vec<Node> = self.all(&Scope::all()).await?;
        let nodes = Nodes::listed_once(&settings.driver.name, csi_nodes, nodes);
        Ok(Some(Topology::new(nodes, self.client.clone(), &flags.provisioning)))
    }

    /// The PersistentVolume that the claim is bound to.
    async fn bound(&self, claim: &Claim) -> Read<Volume> {
        match claim.spec.volume_name.as_deref() {
            None | Some("") => Ok(None),
            Some(name) => self.volume_of_name(name).await,
        }
    }

    /// The PersistentVolume under the name that the claim's would get, or under the usual one.
    async fn named(&self, claim: &Claim, name: &Result<String, Failure>) -> Result<Found, String> {
        let usual = format!("pvc-{}", claim.uid());
        let name = name.as_ref().unwrap_or(&usual);
        let found = judge(self.volume_of_name(name).await?, claim.uid());
        if matches!(found, Found::HasVolume(_)) || *name == usual {
            return Ok(found);
        }
        // Another claim's PersistentVolume is an obstacle only under the name that will be used.
        Ok(match judge(self.volume_of_name(&usual).await?, claim.uid()) {
            Found::HasVolume(volume) => Found::HasVolume(volume),
            _ => found,
        })
    }

    async fn volume_of_name(&self, name: &str) -> Read<Volume> {
        let name = Name::cluster(name).map_err(|error| error.to_string())?;
        self.client.get_opt(name).await.map_err(|error| error.to_string())
    }

    /// The node that the volume is attached to.
    async fn attached(&self, volume: &Volume) -> Read<String> {
        let attachments = Attachments::default();
        let listed: Vec<VolumeAttachment> = self.all(&Scope::all()).await?;
        InformerEvent::list(listed).for_each(attachments.event_handler(drop));
        attachments.blocking_node(volume.name()).map_err(|failure| failure.to_string())
    }

    /// The events about the object.
    async fn events(
        &self,
        namespace: &str,
        kind: &str,
        object: &impl View,
    ) -> Result<Vec<Event>, String> {
        let events = events_about(self.client, namespace, kind, object).await;
        events.map_err(|error| error.to_string())
    }

    async fn all<V: View>(&self, scope: &Scope) -> Result<Vec<V>, String> {
        list(self.client, scope, |_| true).await.map_err(|error| error.to_string())
    }
}

/// The object, if it was found.
pub(super) fn found<T>(read: &Read<T>) -> Option<&T> {
    read.as_ref().ok().and_then(Option::as_ref)
}

/// What a driver can do, as far as checks need it: whoever does not know what the driver lacks must not say
/// that it lacks something.
fn all_capabilities() -> Capabilities {
    Capabilities {
        plugin: [Service::ControllerService, Service::VolumeAccessibilityConstraints].into(),
        controller: [
            Rpc::CreateDeleteVolume,
            Rpc::CreateDeleteSnapshot,
            Rpc::CloneVolume,
            Rpc::ModifyVolume,
            Rpc::SingleNodeMultiWriter,
            Rpc::PublishUnpublishVolume,
        ]
        .into(),
    }
}

/// What the driver can do by its status.
fn capabilities(status: &Status) -> Capabilities {
    let driver = &status.driver;
    let plugin = driver.plugin_capabilities.iter();
    let controller = driver.controller_capabilities.iter();
    Capabilities {
        plugin: plugin.filter_map(|name| Service::from_str_name(name)).collect(),
        controller: controller.filter_map(|name| Rpc::from_str_name(name)).collect(),
    }
}
