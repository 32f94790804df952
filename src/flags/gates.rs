//! Feature gates.
//!
//! Contains every gate that `--feature-gates` takes, its default and its stage, and follows the rules of
//! external-provisioner: gates of Kubernetes' servers are accepted without effect, locked ones cannot be
//! changed, `AllAlpha` and `AllBeta` set what is not set by name. Gates of earlier releases are accepted
//! with a warning; external-provisioner ends.

use std::collections::BTreeMap;

use go_fmt::parse_bool;

use super::values::Refused;

/// The gates that have an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is a gate of its own
pub struct Gates {
    /// Topology is used where the driver has it.
    pub topology: bool,
    /// Parameters of `VolumeAttributesClass` objects are passed on. `None`: not set by the user, so it is
    /// on where the API server has the kind.
    pub volume_attributes_class: Option<bool>,
    /// Classes of ceph-csi's RBD driver get what a fork of external-provisioner gave them.
    pub ceph_rbd_extensions: bool,
    /// Claims may name data sources in other namespaces.
    pub cross_namespace_volume_data_source: bool,
    /// Ceph's driver also serves classes and volumes of the in-tree plugin `kubernetes.io/rbd`, as in
    /// Kubernetes 1.23 to 1.30; external-provisioner no longer has this gate.
    pub csi_migration_rbd: bool,
}

/// Values by gate, as `--feature-gates` gives them.
pub type Map = BTreeMap<String, bool>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
    Ga,
    Deprecated,
}

use Stage::{Alpha, Beta, Deprecated, Ga};

struct Gate {
    name: &'static str,
    stage: Stage,
    default: bool,
    locked: bool,
}

const fn gate(name: &'static str, stage: Stage, default: bool) -> Gate {
    Gate { name, stage, default, locked: false }
}

const fn locked(name: &'static str, stage: Stage, default: bool) -> Gate {
    Gate { name, stage, default, locked: true }
}

/// The gates of external-provisioner itself, and our own. `ReleaseLeaderElectionOnExit` asks for a graceful
/// shutdown, which this program always has.
const OWN: [Gate; 6] = [
    gate("CSIMigrationRBD", Deprecated, false),
    gate("CephRBDExtensions", Alpha, false),
    gate("CrossNamespaceVolumeDataSource", Alpha, false),
    gate("ReleaseLeaderElectionOnExit", Alpha, false),
    gate("Topology", Ga, true),
    gate("VolumeAttributesClass", Ga, true),
];

/// Gates of Kubernetes 1.36's server library, which external-provisioner accepts because it links it.
const FOREIGN: [Gate; 47] = [
    gate("AllAlpha", Alpha, false),
    gate("AllBeta", Beta, false),
    gate("APIResponseCompression", Beta, true),
    gate("APIServerIdentity", Beta, true),
    locked("APIServerTracing", Ga, true),
    gate("APIServingWithRoutine", Alpha, false),
    locked("AggregatedDiscoveryRemoveBetaType", Deprecated, true),
    gate("AllowParsingUserUIDFromCertAuth", Beta, true),
    gate("AllowUnsafeMalformedObjectDeletion", Alpha, false),
    locked("AnonymousAuthConfigurableEndpoints", Ga, true),
    locked("AuthorizeWithSelectors", Ga, true),
    locked("BtreeWatchCache", Ga, true),
    gate("CBORServingAndStorage", Alpha, false),
    gate("ComponentFlagz", Beta, true),
    gate("ComponentStatusz", Beta, true),
    gate("ConcurrentWatchObjectDecode", Beta, false),
    locked("ConsistentListFromCache", Ga, true),
    gate("ConstrainedImpersonation", Beta, true),
    gate("CoordinatedLeaderElection", Beta, false),
    locked("DeclarativeValidation", Ga, true),
    gate("DeclarativeValidationBeta", Beta, true),
    gate("DeclarativeValidationTakeover", Deprecated, false),
    gate("DetectCacheInconsistency", Beta, true),
    gate("KMSv1", Deprecated, false),
    gate("ListFromCacheSnapshot", Beta, true),
    gate("ManifestBasedAdmissionControlConfig", Alpha, false),
    gate("MutatingAdmissionPolicy", Ga, true),
    gate("NativeHistograms", Alpha, false),
    gate("OpenAPIEnums", Beta, true),
    gate("RemoteRequestHeaderUID", Beta, true),
    locked("ResilientWatchCacheInitialization", Ga, true),
    locked("RetryGenerateName", Ga, true),
    locked("SeparateCacheWatchRPC", Deprecated, false),
    gate("ShardedListAndWatch", Alpha, false),
    gate("SizeBasedListCostEstimate", Beta, true),
    gate("StorageVersionAPI", Alpha, false),
    gate("StorageVersionHash", Beta, true),
    locked("StreamingCollectionEncodingToJSON", Ga, true),
    locked("StreamingCollectionEncodingToProtobuf", Ga, true),
    locked("StructuredAuthenticationConfiguration", Ga, true),
    gate("StructuredAuthenticationConfigurationEgressSelector", Beta, true),
    gate("StructuredAuthenticationConfigurationJWKSMetrics", Beta, true),
    gate("TokenRequestServiceAccountUIDValidation", Beta, true),
    gate("UnauthenticatedHTTP2DOSMitigation", Beta, true),
    gate("UnknownVersionInteroperabilityProxy", Beta, true),
    gate("WatchCacheInitializationPostStartHook", Beta, true),
    gate("WatchList", Beta, true),
];

/// A gate of earlier releases.
pub struct RetiredGate {
    /// Its name.
    pub name: &'static str,
    /// external-provisioner's first and last release with it.
    pub releases: &'static str,
    /// What became of it.
    pub fate: &'static str,
}

const fn retired(name: &'static str, releases: &'static str, fate: &'static str) -> RetiredGate {
    RetiredGate { name, releases, fate }
}

/// The gates of earlier releases. `none`: manifests have it, but no release knew it.
pub const RETIRED: [RetiredGate; 8] = [
    retired("CSINodeInfo", "none", "CSINode objects are always used"),
    retired("ComponentSLIs", "v3.5 to v6.1", OF_SERVERS),
    retired("HonorPVReclaimPolicy", "v3.1 to v6.1", "the reclaim policy is always honoured"),
    retired("PreventVolumeModeConversion", "none", "use --prevent-volume-mode-conversion"),
    retired("StrictCostEnforcementForVAP", "v5.1 to v6.1", OF_SERVERS),
    retired("StrictCostEnforcementForWebhooks", "v5.1 to v6.1", OF_SERVERS),
    retired("StructuredAuthorizationConfiguration", "v4.0 to v6.2", OF_SERVERS),
    retired("WatchFromStorageWithoutResourceVersion", "v5.0 to v6.2", OF_SERVERS),
];

/// The retired gate with this name.
pub fn find_retired(name: &str) -> Option<&'static RetiredGate> {
    RETIRED.iter().find(|gate| gate.name == name)
}

/// v6.0 to v6.2 took these in because they linked Kubernetes' server library of their time.
const OF_SERVERS: &str = "it only ever meant something to Kubernetes' own servers; remove it";

/// Reads one value of `--feature-gates`: `A=true,B=false`.
///
/// # Errors
/// In the words of Kubernetes' component-base.
pub fn parse(text: &str) -> Result<Map, Refused> {
    text.split(',').filter(|pair| !pair.is_empty()).map(pair).collect()
}

fn pair(text: &str) -> Result<(String, bool), Refused> {
    let (name, value) = text.split_once('=').ok_or("malformed pair, expect string=bool")?;
    let (name, value) = (name.trim(), value.trim());
    let refuse = |why| format!("invalid value of {name}: {value}, err: {why}");
    Ok((name.to_owned(), parse_bool(value).map_err(refuse)?))
}

impl Gates {
    /// The gates as `map` sets them.
    pub(super) fn new(map: &Map) -> Self {
        let all_alpha = map.get("AllAlpha").copied().unwrap_or(false);
        let alpha = |name| map.get(name).copied().unwrap_or(all_alpha);
        Self {
            topology: map.get("Topology").copied().unwrap_or(true),
            volume_attributes_class: map.get("VolumeAttributesClass").copied(),
            ceph_rbd_extensions: alpha("CephRBDExtensions"),
            cross_namespace_volume_data_source: alpha("CrossNamespaceVolumeDataSource"),
            csi_migration_rbd: map.get("CSIMigrationRBD").copied().unwrap_or(false),
        }
    }
}

/// Warnings about the gates in `map`.
///
/// # Errors
/// external-provisioner's text about unknown gates, and locked ones set to another value.
pub(super) fn check(map: &Map) -> Result<Vec<String>, String> {
    let mut warnings = Vec::new();
    let mut errors = Vec::new();
    for (name, value) in map {
        match judge(name, *value) {
            Judgement::Fine => {}
            Judgement::Warn(warning) => warnings.push(warning),
            Judgement::Refuse(error) => errors.push(error),
        }
    }
    match errors.as_slice() {
        [] => Ok(warnings),
        [one] => Err(one.clone()),
        more => Err(format!("[{}]", more.join(", "))),
    }
}

/// What is to be said of a gate that is set.
pub enum Judgement {
    /// Nothing.
    Fine,
    /// A warning.
    Warn(String),
    /// The program ends with this error.
    Refuse(String),
}

/// The judgement of one gate that is set.
pub fn judge(name: &str, value: bool) -> Judgement {
    if let Some(RetiredGate { fate, .. }) = find_retired(name) {
        return Judgement::Warn(format!("feature gate {name} is retired and ignored: {fate}"));
    }
    let Some(gate) = OWN.iter().chain(&FOREIGN).find(|gate| gate.name == name) else {
        return Judgement::Refuse(format!("unrecognized feature gate: {name}"));
    };
    if gate.locked && gate.default != value {
        return Judgement::Refuse(format!(
            "cannot set feature gate {name} to {value}, feature is locked to {}",
            gate.default
        ));
    }
    let stage = match gate.stage {
        Alpha | Beta => return Judgement::Fine,
        Ga => "GA",
        Deprecated => "deprecated",
    };
    Judgement::Warn(format!(
        "setting {stage} feature gate {name}={value}; it will be removed in a future release"
    ))
}

/// The gates that have an effect: name, stage, default.
pub fn own() -> impl Iterator<Item = (&'static str, &'static str, bool)> {
    OWN.iter().map(|gate| {
        let stage = match gate.stage {
            Alpha => "alpha",
            Beta => "beta",
            Ga => "GA",
            Deprecated => "deprecated",
        };
        (gate.name, stage, gate.default)
    })
}

/// The gates that can still change, as in external-provisioner's usage.
pub(super) fn usage() -> String {
    let lines = OWN.iter().filter(|gate| matches!(gate.stage, Alpha | Beta)).map(|gate| {
        let stage = if gate.stage == Alpha { "ALPHA" } else { "BETA" };
        format!("{}=true|false ({stage} - default={})", gate.name, gate.default)
    });
    lines.fold("Features switched by name:".to_owned(), |usage, line| usage + "\n" + &line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(text: &str) -> Result<(Gates, Vec<String>), String> {
        let map = parse(text).unwrap();
        Ok((Gates::new(&map), check(&map)?))
    }

    fn gates(text: &str) -> Gates {
        resolve(text).unwrap().0
    }

    #[test]
    fn defaults_are_the_originals() {
        let defaults = Gates {
            topology: true,
            volume_attributes_class: None,
            ceph_rbd_extensions: false,
            cross_namespace_volume_data_source: false,
            csi_migration_rbd: false,
        };
        assert_eq!(resolve(""), Ok((defaults, vec![])));
    }

    #[test]
    fn gates_are_set_by_name() {
        let set = gates(
            "Topology=false,VolumeAttributesClass=true, ,CrossNamespaceVolumeDataSource = 1"
                .replace(", ,", ",,")
                .as_str(),
        );
        assert!(!set.topology && set.cross_namespace_volume_data_source);
        assert_eq!(set.volume_attributes_class, Some(true));
        assert_eq!(gates("VolumeAttributesClass=false").volume_attributes_class, Some(false));
    }

    #[test]
    fn all_alpha_sets_what_is_not_set_by_name() {
        let set = gates("AllAlpha=true,CephRBDExtensions=false");
        assert!(set.cross_namespace_volume_data_source && !set.ceph_rbd_extensions);
        assert_eq!(gates("AllBeta=true"), gates(""));
        assert!(!set.csi_migration_rbd && gates("CSIMigrationRBD=true").csi_migration_rbd);
    }

    #[test]
    fn unknown_and_locked_gates_end_the_start() {
        assert_eq!(resolve("Nope=true"), Err("unrecognized feature gate: Nope".to_owned()));
        let locked = "cannot set feature gate BtreeWatchCache to false, feature is locked to true";
        assert_eq!(resolve("BtreeWatchCache=false"), Err(locked.to_owned()));
        let both = format!("[{locked}, unrecognized feature gate: Nope]");
        assert_eq!(resolve("Nope=true,BtreeWatchCache=false"), Err(both));
        assert!(resolve("BtreeWatchCache=true,WatchList=false,ComponentFlagz=true").is_ok());
    }

    #[test]
    fn retired_and_settled_gates_warn() {
        for (text, warning) in [
            (
                "HonorPVReclaimPolicy=true",
                "feature gate HonorPVReclaimPolicy is retired and ignored: the reclaim policy is always honoured",
            ),
            (
                "Topology=true",
                "setting GA feature gate Topology=true; it will be removed in a future release",
            ),
            (
                "KMSv1=true",
                "setting deprecated feature gate KMSv1=true; it will be removed in a future release",
            ),
        ] {
            assert_eq!(resolve(text).unwrap().1, [warning]);
        }
    }
}
