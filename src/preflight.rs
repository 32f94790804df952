//! The rights that are missing, told before anybody runs into them.
//!
//! Owns the question to the API server once the program is ready, again every ten minutes and soon
//! after a request was forbidden, and what is said of its answer where that has changed: one log line
//! a resource with the rule to add, and a gauge. Promises that nothing depends on it:
//! a server that does not answer costs one line, and a missing right is met by whoever needs it,
//! each in its own way. Leaves which rights are needed to [`NEEDS`], and asking to `kube_api`.

mod needs;

use std::{collections::BTreeMap, fmt, time::Duration};

use futures::FutureExt as _;
use tokio::{sync::Notify, time::sleep};

pub use self::needs::{Feature, NEEDS, Need, Place};
use crate::{
    kube::{
        ApiError, Client,
        client::access::{Right, Rules},
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

/// The time between two looks, the second of them after something was forbidden.
const APART: Duration = Duration::from_secs(60);

/// The time between two looks when nothing is.
const AGAIN: Duration = Duration::from_secs(10 * 60);

/// DependencyIndex until rights are to be looked at again. `forbidden` is told of each request that was; what was
/// before this the last look has answered.
pub async fn wait(forbidden: &Notify) {
    let _ = forbidden.notified().now_or_never();
    sleep(APART).await;
    tokio::select! {
        () = sleep(AGAIN.saturating_sub(APART)) => {}
        () = forbidden.notified() => {}
    }
}

/// The rights that lack on one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    resource: &'static str,
    group: &'static str,
    verbs: Vec<&'static str>,
    needed: String,
    /// Which role the rule belongs in.
    add_to: String,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needed, add_to, .. } = self;
        write!(f, "the service account lacks rights ({needed}): add {} to {add_to}", self.rule())
    }
}

/// Looks at the rights, and remembers what it has told.
#[derive(Debug)]
pub struct Preflight {
    client: Client,
    namespaces: Namespaces,
    metrics: ApiMetrics,
    told: Vec<Lack>,
    /// Whether it was told that the server does not say.
    silence_is_told: bool,
}

impl Preflight {
    /// Asks by `client` for rights that hold in `namespaces`.
    pub fn new(client: Client, namespaces: Namespaces, metrics: ApiMetrics) -> Self {
        Self { client, namespaces, metrics, told: Vec::new(), silence_is_told: false }
    }

    /// Asks for the rights that the features need and tells of those that are missing; what lacks,
    /// where that has changed.
    pub async fn look(&mut self, features: &[Feature]) -> Option<&[Lack]> {
        let needs = NEEDS.iter().filter(|need| features.contains(&need.feature));
        let needs: Vec<&Need> = needs.collect();
        match missing(&self.client, &needs, &self.namespaces).await {
            Ok(missing) => self.tell(&missing),
            Err(error) => {
                if !std::mem::replace(&mut self.silence_is_told, true) {
                    tracing::info!(
                        %error,
                        "the API server does not say which rights there are; missing ones show when they are needed"
                    );
                }
                None
            }
        }
    }

    /// One line for each resource, and the gauge.
    fn tell(&mut self, missing: &[&'static Need]) -> Option<&[Lack]> {
        self.metrics.missing_permissions(missing.iter().map(|need| {
            let Right { verb, group, resource } = need.right();
            MissingPermission { verb, group, resource }
        }));
        let lacks = by_resource(missing, &self.namespaces);
        if lacks == self.told {
            return None;
        }
        lacks.iter().for_each(Lack::log);
        if lacks.is_empty() {
            tracing::info!("The service account has all rights now");
        }
        self.told = lacks;
        Some(&self.told)
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

fn by_resource(missing: &[&'static Need], namespaces: &Namespaces) -> Vec<Lack> {
    let mut by_resource: BTreeMap<(&str, &str), Vec<&'static Need>> = BTreeMap::new();
    for need in missing {
        by_resource.entry((need.group, need.resource)).or_default().push(need);
    }
    let lack = |((group, resource), needs): (_, Vec<&'static Need>)| {
        let why: Vec<&str> = needs.iter().map(|need| need.why).collect();
        let place = needs.first().map_or(Place::Everywhere, |need| need.place);
        let verbs = needs.iter().map(|need| need.verb).collect();
        let add_to = add_to(namespaces.of(place));
        Lack { resource, group, verbs, needed: why.join("; "), add_to }
    };
    by_resource.into_iter().map(lack).collect()
}

impl Lack {
    fn log(&self) {
        let Self { resource, group, verbs, needed, add_to } = self;
        let (verbs, rule) = (verbs.join(","), self.rule());
        tracing::warn!(
            resource,
            group,
            verbs,
            needed,
            add_to,
            rule,
            "The service account lacks rights"
        );
    }

    fn rule(&self) -> String {
        rule(self.group, self.resource, &self.verbs)
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
