use serde_json::json;

use super::*;

fn container(container: &Value) -> Container {
    Container::read(container, "ns")
}

#[test]
fn arguments_are_expanded_as_by_the_kubelet() {
    let env = json!([
        {"name": "ADDRESS", "value": "/csi/csi.sock"},
        {"name": "URL", "value": "unix://$(ADDRESS)"},
        {"name": "NS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
    ]);
    for (arg, expected) in [
        ("--a=$(ADDRESS)", Some("--a=/csi/csi.sock")),
        ("--a=$(URL)", Some("--a=unix:///csi/csi.sock")),
        ("--a=$(NS)/$(NODE)", Some("--a=ns/spec.nodeName")),
        ("--a=$$(NS)$(NONE)$", Some("--a=$(NS)$(NONE)$")),
        ("--a=$(NS", Some("--a=$(NS")),
        ("--a=$(SECRET)", None),
    ] {
        let found = container(&json!({"args": [arg], "env": env})).args.remove(0);
        let expected = match expected {
            Some(arg) => Ok(arg.to_owned()),
            None => Err(Unknown { spelled: arg.to_owned(), variable: "SECRET".into() }),
        };
        assert_eq!(found, expected, "{arg}");
    }
}

#[test]
fn a_variable_that_the_manifest_does_not_have_is_unknown() {
    let map = || json!([{"configMapRef": {"name": "settings"}}]);
    for (variable, others) in [
        ("TIMEOUT", map()),
        ("KUBERNETES_SERVICE_HOST", json!([])),
        ("DISK_SERVICE_PORT", json!([])),
    ] {
        let spelled = format!("--timeout=$({variable})");
        let found = container(&json!({"args": [spelled], "envFrom": others})).args.remove(0);
        assert_eq!(found, Err(Unknown { spelled, variable: variable.to_owned() }));
    }
}

#[test]
fn the_provisioner_is_found_by_the_name_of_its_container_or_image() {
    for (name, image, expected) in [
        ("csi-provisioner", "mirror/x:v1", true),
        ("disk", "registry.k8s.io/sig-storage/csi-provisioner:v5.0.1", true),
        ("p", "host:5000/ose-csi-external-provisioner@sha256:12", true),
        ("p", "public.ecr.aws/eks/external-provisioner:v3", true),
        ("p", "registry.k8s.io/nfs-subdir-external-provisioner:v4", false),
        ("csi-attacher", "registry.k8s.io/sig-storage/csi-attacher:v4", false),
    ] {
        let found = container(&json!({"name": name, "image": image})).is_provisioner();
        assert_eq!(found, expected, "{name} {image}");
    }
}

#[test]
fn a_tag_names_the_release_where_the_image_is_external_provisioners() {
    for (image, expected) in [
        ("registry.k8s.io/sig-storage/csi-provisioner:v4.0.0", Some(4)),
        ("host:5000/csi-provisioner:v3.6.4-eks-1@sha256:12", Some(3)),
        ("external-provisioner:v10.1.0", Some(10)),
        ("registry.redhat.io/openshift4/ose-csi-external-provisioner:v4.15", None),
        ("host:5000/csi-provisioner", None),
        ("csi-provisioner:canary", None),
        ("csi-provisioner:v5", None),
    ] {
        let container = container(&json!({"name": "csi-provisioner", "image": image}));
        assert_eq!(container.release(), expected, "{image}");
    }
}

/// The workload of a manifest that has only one.
fn workload(text: &str) -> Workload {
    let manifest = Manifest::parse(&[text.to_owned()], "ns");
    let [only] = manifest.workloads().unwrap().try_into().unwrap();
    only
}

/// The provisioner as a sidecar among the init containers.
const DEPLOYMENT: &str = "
kind: DeploymentList
items:
- metadata: {name: a}
  spec:
    template:
      spec:
        containers:
        - {name: driver, args: [\"--drivername=d.example.com\"]}
        initContainers:
        - {name: external-provisioner}
        - {name: csi-provisioner, command: [/csi-provisioner, --leader-election], args: [-v5], restartPolicy: Always}
---
# empty
---
kind: Secret
";

#[test]
fn lists_of_a_kind_and_several_documents_are_read() {
    let manifest = Manifest::parse(&[DEPLOYMENT.to_owned()], "ns");
    let workload = workload(DEPLOYMENT);
    assert_eq!(workload.title(), "Deployment ns/a, container csi-provisioner, image ");
    assert_eq!(workload.service_account, "default");
    assert_eq!(workload.driver(&manifest).as_deref(), Some("d.example.com"));
    let args: Vec<&str> = workload.provisioner.known_args().collect();
    assert_eq!(args, ["--leader-election", "-v5"]);
    assert!(!workload.replaces_in_place && workload.grace_seconds == 30);
}

#[test]
fn what_merge_keys_name_is_read() {
    let text = "
kind: Pod
spec:
  containers:
  - &base {imagePullPolicy: Always, args: [--v=5]}
  - &side {<<: *base, name: csi-attacher, args: [--leader-election]}
  - {<<: [*side, *base], name: csi-provisioner}
";
    let provisioner = workload(text).provisioner;
    assert_eq!(provisioner.name, "csi-provisioner");
    assert_eq!(provisioner.known_args().collect::<Vec<_>>(), ["--leader-election"]);
}

#[test]
fn the_account_may_have_its_old_name() {
    for (field, expected) in [
        ("serviceAccountName: p", "p"),
        ("serviceAccount: p", "p"),
        ("serviceAccount: p, serviceAccountName: q", "q"),
        ("hostNetwork: true", "default"),
    ] {
        let pod = format!(
            "{{kind: Pod, metadata: {{name: a}}, spec: {{{field}, containers: [{{name: csi-provisioner}}]}}}}"
        );
        assert_eq!(workload(&pod).service_account, expected, "{field}");
    }
}

#[test]
fn an_error_names_the_place_and_no_content() {
    let broken = Manifest::parse(&["a: b\npassword: {s3cret]".to_owned()], "ns");
    let text = broken.workloads().unwrap_err();
    assert!(text.contains("line 2") && !text.contains("s3cret"), "{text}");
    let none = Manifest::parse(&["kind: Secret".to_owned()], "ns");
    assert_eq!(none.workloads().unwrap_err(), NO_PROVISIONER);
}

#[test]
fn a_document_that_cannot_be_read_does_not_hide_the_others() {
    let text = format!("kind: Secret\n--- # broken\na: [b\nc: }}\n---{DEPLOYMENT}");
    let manifest = Manifest::parse(&[text], "ns");
    assert_eq!(manifest.workloads().unwrap().len(), 1);
    let [unreadable] = manifest.unreadable() else { panic!("{manifest:?}") };
    assert!(["line 3", "line 4"].iter().any(|line| unreadable.contains(line)), "{unreadable}");
}

#[test]
fn a_quoted_text_may_go_on_at_the_column_of_its_key() {
    let text = "kind: ConfigMap\ndata:\n  text: 'long\n  and wrapped'\n---\n{kind: Pod, spec: {containers: [{name: csi-provisioner}]}}\n";
    let manifest = Manifest::parse(&[text.to_owned()], "ns");
    assert!(manifest.unreadable().is_empty() && manifest.workloads().is_ok());
    let map = manifest.of_kind("ConfigMap").next().unwrap();
    assert_eq!(super::text(map, "/data/text"), "long and wrapped");
}

#[test]
fn variables_that_expand_each_other_have_an_end() {
    let mut env = vec![json!({"name": "V0", "value": "x".repeat(100)})];
    for number in 1..40 {
        let value = format!("$(V{})", number - 1).repeat(10);
        env.push(json!({"name": format!("V{number}"), "value": value}));
    }
    let container = container(&json!({"env": env, "args": ["--a=$(V2)", "--b=$(V39)"]}));
    assert!(matches!(&container.args[0], Ok(arg) if arg.len() == 10_004));
    let unknown = Unknown { spelled: "--b=$(V39)".to_owned(), variable: "V39".to_owned() };
    assert_eq!(container.args[1], Err(unknown));
    assert_eq!(container.env["V39"], None);
}
