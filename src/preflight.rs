//! The rights that are missing, told before anybody runs into them.
//!
//! Owns the question to the API server once the program is ready, and what is said of its answer:
//! one log line a resource with the rule to add, and a gauge. Promises that nothing depends on it:
//! a server that does not answer costs one line, and a missing right is met by whoever needs it,
//! each in its own way. Leaves which rights are needed to [`NEEDS`], and asking to `kube_api`.

mod needs;

use std::collections::BTreeMap;

pub use self::needs::{Feature, NEEDS, Need, Place};
use crate::{
    kube_api::{
        ApiError, Client,
        access::{Right, Rules},
    },
    metrics::{ApiMetrics, MissingPermission},
};

/// A namespace that nobody binds roles in: rights that are there hold everywhere.
const NOBODYS: &str = "kube-node-lease";

/// The namespaces that rights must hold in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespaces {
    /// That of the Lease.
    pub lease: String,
    /// That of CSIStorageCapacity objects; empty where there is none.
    pub capacity: String,
}

impl Namespaces {
    fn of(&self, place: Place) -> Option<&str> {
        match place {
            Place::Everywhere => None,
            Place::LeaseNamespace => Some(&self.lease),
            Place::CapacityNamespace => Some(&self.capacity),
        }
    }
}

/// Asks for the rights that the features need and tells of those that are missing.
pub async fn run(
    client: Client,
    features: &[Feature],
    namespaces: &Namespaces,
    metrics: &ApiMetrics,
) {
    let needs: Vec<&Need> = NEEDS.iter().filter(|need| features.contains(&need.feature)).collect();
    match missing(&client, &needs, namespaces).await {
        Ok(missing) => tell(&missing, namespaces, metrics),
        Err(error) => tracing::info!(
            %error,
            "the API server does not say which rights there are; missing ones show when they are needed"
        ),
    }
}

/// The needs that are not met.
async fn missing<'a>(
    client: &Client,
    needs: &[&'a Need],
    namespaces: &Namespaces,
) -> Result<Vec<&'a Need>, ApiError> {
    let mut missing = Vec::new();
    for place in [Place::Everywhere, Place::LeaseNamespace, Place::CapacityNamespace] {
        let namespace = namespaces.of(place);
        let here = needs.iter().copied().filter(|need| need.place == place);
        let here: Vec<&Need> = here.collect();
        if here.is_empty() {
            continue;
        }
        let rules = client.rules_in(namespace.unwrap_or(NOBODYS)).await?;
        for need in unmet(&here, &rules) {
            // Where not all rules could be told, each right that is not among them is asked for.
            if !rules.incomplete || !is_met(client, need, namespace).await? {
                missing.push(need);
            }
        }
    }
    Ok(missing)
}

fn unmet<'a>(needs: &[&'a Need], rules: &Rules) -> Vec<&'a Need> {
    let is_met = |need: &Need| need.rights().any(|right| rules.grant(right));
    needs.iter().copied().filter(|need| !is_met(need)).collect()
}

async fn is_met(client: &Client, need: &Need, namespace: Option<&str>) -> Result<bool, ApiError> {
    for right in need.rights() {
        if client.may(right, namespace).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// One line for each resource, and the gauge.
fn tell(missing: &[&Need], namespaces: &Namespaces, metrics: &ApiMetrics) {
    metrics.missing_permissions(missing.iter().map(|need| {
        let Right { verb, group, resource } = need.right();
        MissingPermission { verb, group, resource }
    }));
    let mut by_resource: BTreeMap<(&str, &str), Vec<&Need>> = BTreeMap::new();
    for need in missing {
        by_resource.entry((need.group, need.resource)).or_default().push(need);
    }
    for ((group, resource), needs) in by_resource {
        let verbs: Vec<&str> = needs.iter().map(|need| need.verb).collect();
        let why: Vec<&str> = needs.iter().map(|need| need.why).collect();
        let place = needs.first().map_or(Place::Everywhere, |need| need.place);
        tracing::warn!(
            resource,
            group,
            verbs = verbs.join(","),
            needed = why.join("; "),
            add_to = add_to(namespaces.of(place)),
            rule = rule(group, resource, &verbs),
            "The service account lacks rights"
        );
    }
}

/// Which role the rule belongs in.
fn add_to(namespace: Option<&str>) -> String {
    match namespace {
        None => "the ClusterRole".to_owned(),
        Some(namespace) => format!("the Role in namespace {namespace}"),
    }
}

/// The rule of RBAC that grants `verbs`.
fn rule(group: &str, resource: &str, verbs: &[&str]) -> String {
    let verbs: Vec<String> = verbs.iter().map(|verb| format!("{verb:?}")).collect();
    format!("{{apiGroups: [{group:?}], resources: [{resource:?}], verbs: [{}]}}", verbs.join(", "))
}

#[cfg(test)]
mod tests;
