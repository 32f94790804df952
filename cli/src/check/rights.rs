//! The rights of the ServiceAccount, compared with what the program needs.
//!
//! What the flags, the sidecars and the classes show to be in use is needed; of the rest, such as
//! topology, only the driver knows, and what is missing for it is a note. The roles of the manifest
//! or the cluster's authorizer say what there is.

use super::{
    finding::{Finding, Severity},
    manifest::{Manifest, Workload},
    roles::{Account, granted},
};
use csi_provisioner::{
    flags::{Capacity, Flags},
    kube::{
        ApiError, Client,
        access::{Permission, attributes},
    },
    preflight::{self, Feature, NEEDS, Namespaces, Need},
};
use serde_json::json;

/// Whether a feature is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InUse {
    Yes,
    /// Only the driver, or a claim, decides.
    Perhaps,
    No,
}

/// What is known of a workload that decides which rights it needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Uses<'a> {
    pub(super) flags: &'a Flags,
    pub(super) workload: &'a Workload,
    /// Whether classes of the driver name secrets, if they are known.
    pub(super) reads_secrets: Option<bool>,
}

/// What the program does without, with a loss that docs/differences.md or deploy/README.md describes.
const WORKS_WITHOUT: [(&str, &str); 6] = [
    ("events", "create"),
    ("events", "patch"),
    ("persistentvolumeclaims", "update"),
    ("persistentvolumes", "patch"),
    ("persistentvolumes", "delete"),
    ("leases", "watch"),
];

impl Uses<'_> {
    fn of(&self, feature: Feature) -> InUse {
        let when = |used| if used { InUse::Yes } else { InUse::No };
        let at_least = |used| if used { InUse::Yes } else { InUse::Perhaps };
        let Self { flags, workload, reads_secrets } = self;
        let owner = flags.capacity().and_then(Capacity::owner_level);
        match feature {
            Feature::Provisioning => InUse::Yes,
            Feature::NodeDeployment => when(flags.node_deployment().is_some()),
            Feature::LeaderElection => when(flags.leader_election().is_some()),
            Feature::CrossNamespaceSources => when(flags.gates.cross_namespace_volume_data_source),
            Feature::Capacity => when(flags.capacity().is_some()),
            Feature::CapacityOwner => when(owner.is_some()),
            Feature::CapacityOwnersOwner => when(owner.is_some_and(|level| level > 1)),
            Feature::Attachments => at_least(workload.has_sidecar("attacher")),
            Feature::Snapshots => at_least(workload.has_sidecar("snapshotter")),
            Feature::Secrets => reads_secrets.map_or(InUse::Perhaps, when),
            Feature::Topology if !flags.gates.topology => InUse::No,
            Feature::Topology => at_least(flags.provisioning.strict_topology),
            Feature::VolumeAttributesClass => match flags.gates.volume_attributes_class {
                Some(false) => InUse::No,
                _ => InUse::Perhaps,
            },
        }
    }

    /// What a missing right means for the switch.
    fn severity(&self, need: &Need) -> Severity {
        let blocks = matches!(need.feature, Feature::Provisioning | Feature::LeaderElection)
            && !WORKS_WITHOUT.contains(&(need.resource, need.verb));
        match self.of(need.feature) {
            InUse::Yes if blocks => Severity::Fatal,
            InUse::Yes => Severity::ToDo,
            InUse::Perhaps | InUse::No => Severity::Note,
        }
    }

    /// What may be needed.
    pub(super) fn needs(&self) -> Vec<&'static Need> {
        NEEDS.iter().filter(|need| self.of(need.feature) != InUse::No).collect()
    }
}

/// When a right that is missing for the feature matters.
fn condition_of(feature: Feature) -> &'static str {
    match feature {
        Feature::Attachments => "only if the driver attaches volumes",
        Feature::Snapshots => "only for claims from snapshots",
        Feature::Topology => "only if the driver has topology",
        Feature::Secrets => "only if classes name secrets; Roles in their namespaces do as well",
        Feature::VolumeAttributesClass => "only for claims with a VolumeAttributesClass",
        _ => "",
    }
}

/// The findings about `missing` needs.
pub(super) fn findings(
    uses: Uses<'_>,
    missing: &[&'static Need],
    namespaces: &Namespaces,
) -> Vec<Finding> {
    let severities = [Severity::Fatal, Severity::ToDo, Severity::Note];
    severities
        .into_iter()
        .flat_map(|severity| of_severity(uses, missing, namespaces, severity))
        .collect()
}

fn of_severity(
    uses: Uses<'_>,
    missing: &[&'static Need],
    namespaces: &Namespaces,
    severity: Severity,
) -> Vec<Finding> {
    let alike = missing.iter().copied().filter(|need| uses.severity(need) == severity);
    let alike: Vec<&Need> = alike.collect();
    let finding = |missing: preflight::MissingPermissions| {
        let need = alike.iter().find(|need| need.resource == missing.resource);
        let feature = need.map(|need| need.feature);
        let condition = feature
            .filter(|feature| severity == Severity::Note || *feature == Feature::Secrets)
            .map(|feature| format!(" ({})", condition_of(feature)))
            .unwrap_or_default();
        let text = format!("add to {}{condition}", missing.add_to);
        let subject = format!("lacks {} on {}", missing.verbs.join(", "), missing.resource);
        Finding::new("rights", severity, &subject, &text).with_rule(format!("- {}", missing.rule()))
    };
    preflight::by_resource(&alike, namespaces).into_iter().map(finding).collect()
}

/// The account that the workload runs as.
pub(super) fn account(workload: &Workload) -> Account<'_> {
    Account { namespace: &workload.namespace, name: &workload.service_account }
}

/// The findings by the roles of the manifest.
pub(super) fn by_roles(
    manifest: &Manifest,
    uses: Uses<'_>,
    namespaces: &Namespaces,
) -> Vec<Finding> {
    let account = account(uses.workload);
    let (mut missing, mut absent, mut is_bound) = (Vec::new(), Vec::new(), false);
    for need in uses.needs() {
        let granted = granted(manifest, account, namespaces.of(need.scope));
        if !need.rights().any(|right| granted.rules.grant(right)) {
            missing.push(need);
        }
        absent.extend(granted.absent);
        is_bound |= granted.is_bound;
    }
    absent.sort();
    absent.dedup();
    let findings = findings(uses, &missing, namespaces);
    // What an unknown role may grant cannot be called missing.
    let is_in_doubt = findings.iter().any(|it| it.severity > Severity::Note);
    if !is_bound {
        vec![unchecked(account, &format!("no binding in the manifest names it: {GIVE_ROLES}"))]
    } else if is_in_doubt && !absent.is_empty() {
        let absent = absent.join(", ");
        vec![unchecked(account, &format!("the manifest lacks its {absent}: {GIVE_ROLES}"))]
    } else {
        summed(account, findings)
    }
}

const GIVE_ROLES: &str =
    "give its roles with another --filename, or ask the cluster with --kubeconfig";

/// The findings by the cluster's authorizer.
pub(super) async fn by_cluster(
    client: &Client,
    uses: Uses<'_>,
    namespaces: &Namespaces,
) -> Vec<Finding> {
    let account = account(uses.workload);
    match missing(client, uses, namespaces).await {
        Ok(missing) => summed(account, findings(uses, &missing, namespaces)),
        Err(error) => {
            let text = format!(
                "cannot ask for its rights: {error}; use a kubeconfig of a user who may create subjectaccessreviews"
            );
            vec![unchecked(account, &text)]
        }
    }
}

async fn missing(
    client: &Client,
    uses: Uses<'_>,
    namespaces: &Namespaces,
) -> Result<Vec<&'static Need>, ApiError> {
    let mut missing = Vec::new();
    for need in uses.needs() {
        let mut is_met = false;
        for right in need.rights() {
            let namespace = namespaces.of(need.scope);
            is_met = is_met || may(client, account(uses.workload), right, namespace).await?;
        }
        if !is_met {
            missing.push(need);
        }
    }
    Ok(missing)
}

/// Whether the account has the right; asks the cluster's authorizer, which takes the right to create
/// subjectaccessreviews.
async fn may(
    client: &Client,
    account: Account<'_>,
    right: Permission<'_>,
    namespace: Option<&str>,
) -> Result<bool, ApiError> {
    let spec = json!({
        "user": account.user(),
        "groups": account.groups(),
        "resourceAttributes": attributes(right, namespace),
    });
    client.access("SubjectAccessReview", &spec).await
}

fn unchecked(account: Account<'_>, text: &str) -> Finding {
    Finding::new("rights", Severity::Unchecked, &subject(account), text)
}

fn subject(account: Account<'_>) -> String {
    format!("ServiceAccount {}/{}", account.namespace, account.name)
}

/// The findings, or one that nothing is missing.
fn summed(account: Account<'_>, findings: Vec<Finding>) -> Vec<Finding> {
    if !findings.is_empty() {
        return findings;
    }
    let text = "has every right that may be needed";
    vec![Finding::new("rights", Severity::Ok, &subject(account), text)]
}

#[cfg(test)]
mod tests;
