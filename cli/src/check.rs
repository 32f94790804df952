//! `kubectl csi-provisioner check`: says before the switch what becomes of a manifest that runs
//! external-provisioner.
//!
//! Contains the subcommand's arguments, and what it reads from the cluster. Nothing is written. The
//! parts are pure functions over what was read: `manifest` finds the container, `flags`, `rights`
//! with `roles`, `lease`, `claims` and `differences` check one thing each, `finding` prints them.
//! Reading files is left to `main`.

pub(crate) mod claims;
mod differences;
mod finding;
mod flags;
mod lease;
mod manifest;
mod releases;
mod review;
mod rights;
mod roles;
#[cfg(test)]
mod testing;

use std::collections::BTreeMap;

use clap::Args;

pub use self::finding::NOT_CHECKED;
use self::{
    differences::Facts,
    finding::{Checked, Finding, Severity},
    flags::CommandLine,
    manifest::{Container, Manifest, Workload},
    rights::Uses,
};
use csi_provisioner::{
    controller::ownership::ProvisionerIdentity,
    csi_provisioner::reads_secret,
    flags::Flags,
    kube::{
        ApiError, Client, Scope, View,
        objects::{Claim, StorageClass},
    },
    preflight::Namespaces,
};
use csi_translation::Migration;
use serde_json::Value;

use crate::{
    connection::{ApiServer, list},
    objects::events_about,
    subcommand::{Format, Output},
};

/// The parsed arguments.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(
    after_help = "With --kubeconfig or --master it asks the cluster about rights and claims as well.\nExit codes: 0 nothing to do, 1 something to do before the switch, 2 the switch would fail, 3 could not be checked"
)]
pub struct Request {
    /// `--filename`: the manifests; `-` is stdin.
    #[arg(
        long = "filename",
        short,
        value_name = "file",
        required = true,
        help = "The Deployment with its roles, YAML or JSON; - is stdin; may be repeated"
    )]
    pub files: Vec<String>,
    /// The API server.
    #[command(flatten)]
    pub server: ApiServer,
    /// `--namespace`: of objects that name none.
    #[arg(
        long,
        short,
        value_name = "name",
        default_value = "default",
        help = "Of objects that name none"
    )]
    pub namespace: String,
    /// `--driver`: the driver's name, if the manifest does not show it.
    #[arg(
        long,
        value_name = "name",
        help = "The CSI driver's name, where the manifest does not show it"
    )]
    pub driver: Option<String>,
    /// `--output`.
    #[command(flatten)]
    pub format: Format,
}

/// Checks the manifests, whose texts are given; with a client also the cluster.
pub async fn run(
    client: Option<&Client>,
    request: &Request,
    manifests: &[String],
) -> Result<Output, String> {
    let manifest = Manifest::parse(manifests, &request.namespace);
    let workloads = manifest.workloads()?;
    let cluster =
        match client {
            Some(client) => Some(Cluster::read(client).await.map_err(|error| {
                format!("cannot read the cluster's claims and classes: {error}")
            })?),
            None => None,
        };
    let mut checked = Vec::new();
    let unread = |why: &String| Finding::new("manifest", Severity::Unchecked, "a document", why);
    let unread: Vec<Finding> = manifest.unreadable().iter().map(unread).collect();
    if !unread.is_empty() {
        checked.push(Checked::new("The files", unread));
    }
    for workload in &workloads {
        let check = Check { request, manifest: &manifest, cluster: cluster.as_ref(), workload };
        checked.push(Checked::new(&workload.title(), check.findings().await));
    }
    Ok(finding::output(&checked, request.format.is_json))
}

/// What is read from the cluster.
struct Cluster<'a> {
    client: &'a Client,
    /// The claims without a volume.
    claims: Vec<Claim>,
    classes: Vec<StorageClass>,
}

impl<'a> Cluster<'a> {
    async fn read(client: &'a Client) -> Result<Self, ApiError> {
        let classes = list(client, &Scope::all(), |_| true).await?;
        let claims = list(client, &Scope::all(), Claim::is_unbound).await?;
        Ok(Self { client, claims, classes })
    }
}

/// The check of one workload.
struct Check<'a> {
    request: &'a Request,
    manifest: &'a Manifest,
    cluster: Option<&'a Cluster<'a>>,
    workload: &'a Workload,
}

impl Check<'_> {
    async fn findings(&self) -> Vec<Finding> {
        let named = self.request.driver.clone();
        let driver = named.or_else(|| self.workload.driver(self.manifest));
        let line = flags::check(&self.workload.provisioner, driver.as_deref());
        let Some(flags) = &line.flags else {
            let text = "checked once the program starts with the flags";
            let rest = Finding::new("rights", Severity::Unchecked, "the rest", text);
            return line.findings.into_iter().chain([rest]).collect();
        };
        let mut findings = self.rights(flags, driver.as_deref()).await;
        findings.extend(lease::check(flags, self.workload, driver.as_deref()));
        findings.extend(self.claims(flags, driver.as_deref()).await);
        findings.extend(self.differences(&line, flags, driver.as_deref()));
        line.findings.into_iter().chain(findings).collect()
    }

    async fn rights(&self, flags: &Flags, driver: Option<&str>) -> Vec<Finding> {
        let uses = Uses {
            flags,
            workload: self.workload,
            reads_secrets: driver.and_then(|driver| self.reads_secrets(flags, driver)),
        };
        let capacity = flags.capacity().map(|capacity| capacity.namespace.clone());
        let namespaces = Namespaces {
            lease: lease::namespace(flags, self.workload),
            capacity: capacity.unwrap_or_default(),
        };
        match self.cluster {
            Some(cluster) => rights::by_cluster(cluster.client, uses, &namespaces).await,
            None => rights::by_roles(self.manifest, uses, &namespaces),
        }
    }

    /// Whether a class of the driver names secrets; `None` without a cluster, whose classes count.
    fn reads_secrets(&self, flags: &Flags, driver: &str) -> Option<bool> {
        let migration = migration(flags, driver);
        let classes = &self.cluster?.classes;
        Some(classes.iter().any(|class| reads_secret(class, driver, migration)))
    }

    async fn claims(&self, flags: &Flags, driver: Option<&str>) -> Vec<Finding> {
        let Some(cluster) = self.cluster else { return Vec::new() };
        let Some(driver) = driver else {
            let text = "the manifest does not show the driver's name: give --driver";
            return vec![Finding::new("claims", Severity::Unchecked, "claims", text)];
        };
        let in_tree = migration(flags, driver).map(|it| it.in_tree_name().to_owned());
        let identity = ProvisionerIdentity { in_tree, ..ProvisionerIdentity::of_driver(driver) };
        let waiting = claims::waiting(&identity, &cluster.claims, &cluster.classes);
        let mut messages = BTreeMap::new();
        let listed = waiting.iter().take(claims::LISTED).filter(|(why, _)| why.has_events());
        for (_, claim) in listed {
            // Without the right to read events the reason must do.
            let namespace = claim.namespace();
            let events = events_about(cluster.client, namespace, "PersistentVolumeClaim", *claim);
            let events = events.await.unwrap_or_default();
            let message = claims::last_warning(&events);
            messages.extend(message.map(|it| (claim.uid().to_owned(), it.to_owned())));
        }
        claims::findings(&waiting, &messages)
    }

    fn differences(&self, line: &CommandLine, flags: &Flags, driver: Option<&str>) -> Vec<Finding> {
        differences::check(&Facts {
            flags,
            workload: self.workload,
            has_retired: line.has_retired,
            migrates: driver.and_then(|driver| migration(flags, driver)).is_some(),
        })
    }
}

/// `--status-endpoint` of a container in a pod.
pub(crate) fn status_address(container: &Value) -> Option<String> {
    flags::check(&Container::read(container, ""), None).flags?.http.status
}

fn migration(flags: &Flags, driver: &str) -> Option<Migration> {
    Migration::of_driver(driver, flags.gates.csi_migration_rbd)
}

#[cfg(test)]
mod tests;
