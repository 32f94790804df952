//! Reports missing RBAC permissions before they cause errors.
//!
//! Asks the API server once the program is ready, again every ten minutes and soon after a request
//! was forbidden. A change is reported: one log line a resource with the rule to add, and a gauge.
//! Nothing depends on the answer: a server that does not answer costs one log line, and each caller
//! handles a missing permission in its own way. The needed permissions are in [`NEEDS`].

mod needs;

use std::{collections::BTreeMap, fmt, time::Duration};

use futures::FutureExt as _;
use tokio::{sync::Notify, time::sleep};

pub use self::needs::{Feature, NEEDS, Need, RightScope};
use crate::{
    kube::{ApiError, Client, client::access::Rules},
    metrics::ApiMetrics,
};

/// A namespace without role bindings: permissions that exist there exist everywhere.
const UNBOUND_NAMESPACE: &str = "kube-node-lease";

/// The namespaces in which permissions are needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespaces {
    /// The namespace of the Lease.
    pub lease: String,
    /// The namespace of CSIStorageCapacity objects; empty if there is none.
    pub capacity: String,
}

impl Namespaces {
    /// The namespace of the scope; `None` for the whole cluster.
    pub fn of(&self, scope: RightScope) -> Option<&str> {
        match scope {
            RightScope::Everywhere => None,
            RightScope::LeaseNamespace => Some(&self.lease),
            RightScope::CapacityNamespace => Some(&self.capacity),
        }
    }
}

/// The minimum time between two checks, the second one after a forbidden request.
const MIN_INTERVAL: Duration = Duration::from_secs(60);

/// The time between two checks without forbidden requests.
const INTERVAL: Duration = Duration::from_secs(10 * 60);

/// Waits until permissions must be checked again. `forbidden` is notified of each forbidden
/// request; notifications from before this call are ignored, because the last check covered them.
pub async fn wait(forbidden: &Notify) {
    let _ = forbidden.notified().now_or_never();
    sleep(MIN_INTERVAL).await;
    tokio::select! {
        biased;
        () = sleep(INTERVAL.saturating_sub(MIN_INTERVAL)) => {}
        () = forbidden.notified() => {}
    }
}

/// The missing permissions on one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingPermissions {
    /// The resource's plural name.
    pub resource: &'static str,
    group: &'static str,
    /// The missing verbs.
    pub verbs: Vec<&'static str>,
    needed: String,
    /// The role to add the rule to.
    pub add_to: String,
}

impl fmt::Display for MissingPermissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needed, add_to, .. } = self;
        write!(f, "the service account lacks rights ({needed}): add {} to {add_to}", self.rule())
    }
}

/// Checks permissions, and remembers what it has reported.
pub struct Preflight {
    client: Client,
    namespaces: Namespaces,
    metrics: ApiMetrics,
    reported: Vec<MissingPermissions>,
    /// Whether the failure to check was reported.
    failure_reported: bool,
}

impl Preflight {
    /// Checks through `client` for permissions in `namespaces`.
    pub fn new(client: Client, namespaces: Namespaces, metrics: ApiMetrics) -> Self {
        Self { client, namespaces, metrics, reported: Vec::new(), failure_reported: false }
    }

    /// Checks the permissions that the features need and reports the missing ones. Returns them if
    /// they have changed.
    pub async fn check(&mut self, features: &[Feature]) -> Option<&[MissingPermissions]> {
        let needs = NEEDS.iter().filter(|need| features.contains(&need.feature));
        let needs: Vec<&Need> = needs.collect();
        match missing(&self.client, &needs, &self.namespaces).await {
            Ok(missing) => self.report(&missing),
            Err(error) => {
                if !std::mem::replace(&mut self.failure_reported, true) {
                    tracing::info!(
                        %error,
                        "the API server does not say which rights there are; missing ones show when they are needed"
                    );
                }
                None
            }
        }
    }

    /// Logs one line for each resource and sets the gauge.
    fn report(&mut self, missing: &[&'static Need]) -> Option<&[MissingPermissions]> {
        let rights = missing.iter().map(|need| [need.verb, need.group, need.resource]);
        self.metrics.missing_permissions(rights);
        let missing_permissions = by_resource(missing, &self.namespaces);
        if missing_permissions == self.reported {
            return None;
        }
        for permission in &missing_permissions {
            tracing::warn!("{permission}");
        }
        if missing_permissions.is_empty() {
            tracing::info!("The service account has all rights now");
        }
        self.reported = missing_permissions;
        Some(&self.reported)
    }
}

/// The needs that are not met.
async fn missing<'a>(
    client: &Client,
    needs: &[&'a Need],
    namespaces: &Namespaces,
) -> Result<Vec<&'a Need>, ApiError> {
    let mut missing = Vec::new();
    for scope in [RightScope::Everywhere, RightScope::LeaseNamespace, RightScope::CapacityNamespace]
    {
        let namespace = namespaces.of(scope);
        let needs_here = needs.iter().copied().filter(|need| need.scope == scope);
        let needs_here: Vec<&Need> = needs_here.collect();
        if needs_here.is_empty() {
            continue;
        }
        let rules = client.rules_in(namespace.unwrap_or(UNBOUND_NAMESPACE)).await?;
        for need in unmet(&needs_here, &rules) {
            // If the server did not return all rules, ask for each permission that is not among
            // them.
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

/// The missing permissions by resource.
pub fn by_resource(missing: &[&'static Need], namespaces: &Namespaces) -> Vec<MissingPermissions> {
    let mut by_resource: BTreeMap<(&str, &str), Vec<&'static Need>> = BTreeMap::new();
    for need in missing {
        by_resource.entry((need.group, need.resource)).or_default().push(need);
    }
    let missing_permissions = |((group, resource), needs): (_, Vec<&'static Need>)| {
        let why: Vec<&str> = needs.iter().map(|need| need.why).collect();
        let scope = needs.first().map_or(RightScope::Everywhere, |need| need.scope);
        let verbs = needs.iter().map(|need| need.verb).collect();
        let add_to = add_to(namespaces.of(scope));
        MissingPermissions { resource, group, verbs, needed: why.join("; "), add_to }
    };
    by_resource.into_iter().map(missing_permissions).collect()
}

impl MissingPermissions {
    /// The RBAC rule to add.
    pub fn rule(&self) -> String {
        let Self { group, resource, verbs, .. } = self;
        let verbs: Vec<String> = verbs.iter().map(|verb| format!("{verb:?}")).collect();
        format!(
            "{{apiGroups: [{group:?}], resources: [{resource:?}], verbs: [{}]}}",
            verbs.join(", ")
        )
    }
}

/// The role to add the rule to.
fn add_to(namespace: Option<&str>) -> String {
    match namespace {
        None => "the ClusterRole".to_owned(),
        Some(namespace) => format!("the Role in namespace {namespace}"),
    }
}

#[cfg(test)]
mod tests;
