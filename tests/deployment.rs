//! The example Deployment and the Dockerfile say what the program understands.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)] // all of it is tests

use csi_provisioner::{flags::Flags, http};
use serde_json::{Value, json};
use testkit::apiserver::serve::manifests;

fn objects(manifest: &str) -> Vec<Value> {
    manifests::parse(manifest).expect("the manifest is YAML")
}

fn pod() -> Value {
    let deployment = objects(include_str!("../deploy/kubernetes/deployment.yaml")).remove(0);
    deployment["spec"]["template"]["spec"].clone()
}

/// The container of the program, which stands first.
fn container() -> Value {
    let container = pod()["containers"][0].clone();
    assert_eq!(container["name"], "csi-provisioner");
    container
}

#[test]
fn its_flags_are_accepted_without_a_warning() {
    let container = container();
    let arguments = container["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap());
    let arguments = ["csi-provisioner"].into_iter().chain(arguments).map(Into::into);
    let parsed = Flags::parse(arguments, |_| None).expect("the flags are valid");
    assert_eq!(parsed.warnings, Vec::<String>::new());
    assert!(parsed.flags.leader_election.is_some(), "two replicas must elect a leader");
    assert!(parsed.flags.http.is_some(), "the probes need an endpoint");
}

/// The arguments that Alibaba's disk plugin gave v1.6.0, with the address filled in.
const OF_V1: [&str; 10] = [
    "--provisioner=diskplugin.csi.alibabacloud.com",
    "--csi-address=/var/lib/kubelet/csi-provisioner/diskplugin.csi.alibabacloud.com/csi.sock",
    "--feature-gates=Topology=True",
    "--volume-name-prefix=disk",
    "--strict-topology=true",
    "--timeout=150s",
    "--enable-leader-election=true",
    "--leader-election-type=leases",
    "--retry-interval-start=500ms",
    "--v=5",
];

#[test]
fn a_deployment_of_v1_starts_unchanged() {
    let arguments = ["csi-provisioner"].into_iter().chain(OF_V1).map(Into::into);
    let parsed = Flags::parse(arguments, |_| None).expect("the flags are valid");
    let retired = parsed.warnings.iter().filter(|warning| warning.contains("retired"));
    assert_eq!(retired.count(), 3, "{:?}", parsed.warnings);
    let flags = parsed.flags;
    assert!(flags.leader_election.is_some() && flags.gates.topology);
    assert!(flags.provisioning.strict_topology);
    assert_eq!(flags.provisioning.name_prefix, "disk");
    assert_eq!((flags.driver.timeout.as_secs(), flags.logging.verbosity), (150, 5));
}

#[test]
fn its_probes_ask_what_is_answered() {
    let container = container();
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], http::LEADER_ELECTION_CHECK);
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
}

#[test]
fn it_runs_without_rights_on_the_node_and_with_those_of_the_manifest() {
    let (pod, container) = (pod(), container());
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(container["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
    let rights = objects(include_str!("../deploy/kubernetes/rbac.yaml"));
    let account = rights.iter().find(|object| object["kind"] == "ServiceAccount").unwrap();
    assert_eq!(pod["serviceAccountName"], account["metadata"]["name"]);
}

#[test]
fn the_image_is_built_with_the_oldest_rust_that_is_promised() {
    let promised = format!("FROM rust:{}-", env!("CARGO_PKG_RUST_VERSION"));
    assert!(include_str!("../Dockerfile").contains(&promised), "{promised}");
}
