//! The example Deployment, the overlays and the Dockerfile say what the program understands and
//! what CI has tried.

use std::process::Command;

use cli::shadow;
use csi_provisioner::flags::{Flags, LEADER_ELECTION_CHECK};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    batch::v1::Job,
    core::v1::ServiceAccount,
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use support::process::beside;
use testkit::apiserver::serve::manifests;

fn objects(manifest: &str) -> Vec<Value> {
    manifests::parse(manifest).expect("the manifest is YAML")
}

// === deploy/kubernetes ===

fn pod() -> Value {
    pod_of(include_str!("../../deploy/kubernetes/deployment.yaml"))
}

/// The pod of the example for node-local volumes.
fn node_pod() -> Value {
    pod_of(include_str!("../../deploy/kubernetes/daemonset.yaml"))
}

fn pod_of(manifest: &str) -> Value {
    objects(manifest).remove(0)["spec"]["template"]["spec"].clone()
}

/// The container of the program, which stands first.
fn container(pod: &Value) -> Value {
    let container = pod["containers"][0].clone();
    assert_eq!(container["name"], "csi-provisioner");
    container
}

fn flags(pod: &Value) -> Flags {
    let container = container(pod);
    let arguments = container["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap());
    let arguments = ["csi-provisioner"].into_iter().chain(arguments).map(Into::into);
    let given = |name: &str| {
        let given = container["env"].as_array()?.iter().find(|given| given["name"] == name)?;
        Some(given["valueFrom"]["fieldRef"]["fieldPath"].as_str().unwrap().into())
    };
    let parsed = Flags::parse(arguments, given).expect("the flags are valid");
    assert_eq!(parsed.warnings, Vec::<String>::new());
    parsed.flags
}

#[test]
fn on_nodes_each_process_knows_its_node_and_none_leads() {
    let flags = flags(&node_pod());
    assert_eq!(flags.node_deployment().unwrap().node_name, "spec.nodeName");
    assert!(flags.leader_election().is_none() && flags.http.address().is_some());
    let probes = container(&node_pod());
    assert_eq!(probes["livenessProbe"]["httpGet"]["path"], "/healthz");
    assert_eq!(probes["readinessProbe"]["httpGet"]["path"], "/readyz");
}

#[test]
fn on_nodes_the_program_runs_as_elsewhere() {
    let (here, there) = (pod(), node_pod());
    let same = ["securityContext", "serviceAccountName", "terminationGracePeriodSeconds"];
    assert!(same.iter().all(|field| here[field] == there[field]));
    for field in ["image", "securityContext", "ports", "resources", "volumeMounts"] {
        assert_eq!(container(&here)[field], container(&there)[field], "{field}");
    }
}

#[test]
fn its_replicas_elect_a_leader_and_its_probes_ask_what_is_answered() {
    let flags = flags(&pod());
    assert!(flags.leader_election().is_some() && flags.http.address().is_some());
    let container = container(&pod());
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], LEADER_ELECTION_CHECK);
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    let port = &container["ports"][0];
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(container[probe]["httpGet"]["port"], port["name"]);
    }
}

#[test]
fn one_late_answer_restarts_nobody_and_a_slow_driver_has_minutes_to_start() {
    for pod in [pod(), node_pod()] {
        let container = container(&pod);
        let number = |probe: &str, field: &str| container[probe][field].as_u64();
        assert_eq!(number("livenessProbe", "failureThreshold"), Some(3));
        // The startup probe stands in for a delay: the first answer ends it.
        assert_eq!(number("livenessProbe", "initialDelaySeconds"), None);
        let tries = number("startupProbe", "failureThreshold").unwrap();
        assert!(tries * number("startupProbe", "periodSeconds").unwrap() >= 300);
        let path = |probe: &str| container[probe]["httpGet"]["path"].clone();
        assert_eq!(path("startupProbe"), path("livenessProbe"));
    }
}

/// The policy that is there to copy.
const POLICY: &str = include_str!("../../deploy/kubernetes/networkpolicy.yaml");

#[test]
fn the_network_policy_is_about_the_pods_and_the_port_of_the_program() {
    let policy = objects(POLICY).remove(0);
    let ingress = &policy["spec"]["ingress"][0];
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]), "the way out stays open");
    for (manifest, pod) in [
        (include_str!("../../deploy/kubernetes/deployment.yaml"), pod()),
        (include_str!("../../deploy/kubernetes/daemonset.yaml"), node_pod()),
    ] {
        let labels = &objects(manifest)[0]["spec"]["template"]["metadata"]["labels"];
        assert_eq!(policy["spec"]["podSelector"]["matchLabels"], *labels);
        assert_eq!(ingress["ports"][0]["port"], container(&pod)["ports"][0]["name"]);
    }
}

/// Keeps a replica while nodes are drained.
const BUDGET: &str = include_str!("../../deploy/kubernetes/poddisruptionbudget.yaml");

#[test]
fn a_node_that_fails_or_is_drained_leaves_a_replica() {
    let deployment = objects(include_str!("../../deploy/kubernetes/deployment.yaml")).remove(0);
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let spread = "preferredDuringSchedulingIgnoredDuringExecution";
    let term = &pod()["affinity"]["podAntiAffinity"][spread][0]["podAffinityTerm"];
    assert_eq!(term["topologyKey"], "kubernetes.io/hostname");
    assert_eq!(term["labelSelector"]["matchLabels"], *labels);
    let budget = objects(BUDGET).remove(0);
    assert_eq!(budget["metadata"]["namespace"], deployment["metadata"]["namespace"]);
    assert_eq!(budget["spec"]["selector"]["matchLabels"], *labels);
    let unavailable = budget["spec"]["maxUnavailable"].as_u64();
    assert!(unavailable < deployment["spec"]["replicas"].as_u64());
    assert_eq!(pod()["priorityClassName"], "system-cluster-critical");
}

#[test]
fn it_gets_more_time_to_end_than_it_takes() {
    let grace = pod()["terminationGracePeriodSeconds"].as_u64().unwrap();
    // What comes after the running calls takes 5 s at most.
    assert!(grace >= flags(&pod()).safety.shutdown_timeout.as_secs() + 5);
}

#[test]
fn its_pod_passes_pod_security_restricted() {
    let pod = pod();
    let context = &pod["securityContext"];
    assert_eq!(context["runAsNonRoot"], true);
    assert_eq!(context["seccompProfile"], json!({"type": "RuntimeDefault"}));
    for container in pod["containers"].as_array().unwrap() {
        let expected = json!({
            "readOnlyRootFilesystem": true,
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
        });
        assert_eq!(container["securityContext"], expected, "{}", container["name"]);
    }
}

#[test]
fn it_acts_as_the_account_that_the_rights_are_for() {
    let rights = objects(include_str!("../../deploy/kubernetes/rbac.yaml"));
    let account = rights.iter().find(|object| object["kind"] == "ServiceAccount").unwrap();
    assert_eq!(pod()["serviceAccountName"], account["metadata"]["name"]);
}

const RELEASE_CLAIMS: &str = "release-claims";

/// The exit code of the CLI with these arguments, outside a cluster.
fn cli(arguments: &[&str]) -> Option<i32> {
    let cli = beside(env!("CARGO_BIN_EXE_csi-provisioner"), "kubectl-csi_provisioner");
    Command::new(cli).args(arguments).env_clear().output().unwrap().status.code()
}

/// The Job that prepares the way back to external-provisioner.
const RELEASE: &str = include_str!("../../deploy/kubernetes/release-claims-job.yaml");

#[test]
fn the_job_on_the_way_back_runs_the_subcommand_of_this_version_as_the_account_with_its_rights() {
    let all = objects(RELEASE);
    let account = &all[0]["metadata"]["name"];
    let pod = &all[all.len() - 1]["spec"]["template"]["spec"];
    assert_eq!(&pod["serviceAccountName"], account);
    for binding in all.iter().filter(|it| it["kind"].as_str().unwrap().ends_with("Binding")) {
        assert_eq!(&binding["subjects"][0]["name"], account);
    }
    let container = &pod["containers"][0];
    assert_eq!(container["image"], IMAGE);
    let mut args = container["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    assert_eq!(args.next(), Some(RELEASE_CLAIMS));
    let args: Vec<_> = args.collect();
    assert!(args.contains(&"--release") && !args.contains(&"--force"), "{args:?}");
    // Outside a cluster valid arguments end with 1, others with 2.
    assert_eq!(cli(&[&[RELEASE_CLAIMS][..], &args].concat()), Some(1));
    assert_eq!(container["command"], json!(["/kubectl-csi_provisioner"]));
}

/// Shadow mode beside external-provisioner.
const SHADOW: &str = include_str!("../../deploy/kubernetes/shadow.yaml");

#[test]
fn shadow_mode_runs_with_a_role_of_its_own_and_serves_the_report_to_its_pod_only() {
    let all = objects(SHADOW);
    let pod = &all[all.len() - 1]["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], all[0]["metadata"]["name"]);
    assert_eq!(container(pod)["image"], IMAGE);
    let container = container(pod);
    assert_eq!(container["command"], json!(["/kubectl-csi_provisioner", "shadow"]));
    let arguments = container["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
    let (parsed, driver) =
        shadow::parse(arguments.map(Into::into), |_| None).expect("the flags are valid");
    assert_eq!(parsed.warnings, Vec::<String>::new());
    assert!(!driver.name.is_empty(), "the driver is described");
    assert_eq!(parsed.flags.http.status.as_deref(), Some("127.0.0.1:8090"));
    let report =
        SHADOW.lines().find_map(|line| line.split_once("/kubectl-csi_provisioner ")).unwrap().1;
    assert_eq!(report.trim(), "shadow-report --status-endpoint=:8090");
}

/// What is left of an object when only the fields of its kind are kept.
fn known<T: Serialize + DeserializeOwned>(object: &Value) -> Value {
    let typed: T = serde_json::from_value(object.clone()).expect("the fields have their types");
    serde_json::to_value(typed).unwrap()
}

#[test]
fn its_objects_have_no_field_that_kubernetes_does_not_know() {
    let manifests = [
        include_str!("../../deploy/kubernetes/rbac.yaml"),
        include_str!("../../deploy/kubernetes/deployment.yaml"),
        include_str!("../../deploy/kubernetes/daemonset.yaml"),
        POLICY,
        BUDGET,
        RELEASE,
        SHADOW,
    ];
    for object in manifests.into_iter().flat_map(objects) {
        let known = match object["kind"].as_str().unwrap() {
            "ClusterRole" => known::<ClusterRole>(&object),
            "ClusterRoleBinding" => known::<ClusterRoleBinding>(&object),
            "DaemonSet" => known::<DaemonSet>(&object),
            "Deployment" => known::<Deployment>(&object),
            "Job" => known::<Job>(&object),
            "NetworkPolicy" => known::<NetworkPolicy>(&object),
            "PodDisruptionBudget" => known::<PodDisruptionBudget>(&object),
            "Role" => known::<Role>(&object),
            "RoleBinding" => known::<RoleBinding>(&object),
            "ServiceAccount" => known::<ServiceAccount>(&object),
            kind => unreachable!("nothing is known of a {kind}"),
        };
        assert_eq!(known, object);
    }
}

/// Every kustomization that is shipped.
const KUSTOMIZATIONS: [&str; 3] = [
    include_str!("../../deploy/kubernetes/kustomization.yaml"),
    include_str!("../../deploy/ceph-csi/rbd/kustomization.yaml"),
    include_str!("../../deploy/ceph-csi/cephfs/kustomization.yaml"),
];

/// The image of this version.
const IMAGE: &str = concat!("registry.example.com/csi-provisioner:", env!("CARGO_PKG_VERSION"));

#[test]
fn documents_build_and_push_this_version_of_the_image() {
    let page = include_str!("../../deploy/README.md");
    assert!(page.contains(&format!("$ docker build -t {IMAGE} .\n$ docker push {IMAGE}\n")));
    assert!(DOCKERFILE.contains(&format!("docker build -t {IMAGE} .\n")));
    let archive = concat!("dist/csi-provisioner-", env!("CARGO_PKG_VERSION"), ".oci.tar");
    assert!(page.contains(&format!(" oci-archive:{archive} docker://{IMAGE}\n")));
}

#[test]
fn the_page_about_a_switch_names_this_version_of_the_image() {
    let page = include_str!("../../docs/migration.md");
    assert!(page.contains(concat!("tag: ", env!("CARGO_PKG_VERSION"), "\n")));
    assert!(page.contains(&format!("{IMAGE}\n")));
}

#[test]
fn kustomizations_name_this_version_of_the_image() {
    for kustomization in KUSTOMIZATIONS {
        for image in objects(kustomization)[0]["images"].as_array().unwrap() {
            let part = |key: &str| image[key].as_str().unwrap().to_owned();
            assert_eq!([part("newName"), part("newTag")].join(":"), IMAGE);
        }
    }
}

// === Dockerfile ===

const DOCKERFILE: &str = include_str!("../../Dockerfile");

/// The instructions of the Dockerfile with a given name, without it; continued lines are joined.
fn instructions(name: &str) -> Vec<String> {
    let joined = DOCKERFILE.replace("\\\n", " ");
    let lines = joined.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_image_is_built_with_the_oldest_rust_that_is_promised() {
    let promised = format!("RUST=rust:{}-bookworm@sha256:", env!("CARGO_PKG_RUST_VERSION"));
    let [base] = instructions("ARG").try_into().unwrap();
    let digest = base.strip_prefix(&promised).expect(&base);
    assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{digest}");
    assert_eq!(instructions("FROM"), ["${RUST} AS build", "scratch"]);
}

#[test]
fn the_image_is_built_by_the_command_that_ci_tries() {
    assert_eq!(
        instructions("RUN"),
        [".ci/static", ".ci/contents notices >target/shipped/THIRD-PARTY-NOTICES"]
    );
    let calls = |script: &str, other: &str| script.lines().any(|line| line.trim() == other);
    assert!(calls(include_str!("../../.ci/run"), ".ci/empty-root"));
    assert!(calls(include_str!("../../.ci/empty-root"), ".ci/static"));
    // What it leaves is what is copied, and what the empty root gets.
    let made = "target/shipped/csi-provisioner";
    assert!(include_str!("../../.ci/empty-root").contains(made));
    for program in ["csi-provisioner", "kubectl-csi_provisioner"] {
        let made = format!("target/shipped/{program}");
        assert!(calls(include_str!("../../.ci/static"), &format!("finish {made}")));
        let copied = format!("--from=build /source/{made} /{program}");
        assert!(instructions("COPY").contains(&copied));
    }
}

#[test]
fn the_images_labels_are_the_packages() {
    let labels = instructions("LABEL").remove(0);
    for (label, value) in [
        ("title", env!("CARGO_PKG_NAME")),
        ("description", env!("CARGO_PKG_DESCRIPTION")),
        ("version", env!("CARGO_PKG_VERSION")),
        ("licenses", env!("CARGO_PKG_LICENSE")),
    ] {
        let label = format!("org.opencontainers.image.{label}=\"{value}\"");
        assert!(labels.contains(&label), "{label}");
    }
}
