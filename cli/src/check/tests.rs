mod flags_page;

use super::*;
use crate::{subcommand::Command, testing};

fn parse(args: &[&str]) -> Result<Request, Output> {
    let Command::Check(request) = testing::parse("check", args)? else { panic!("{args:?}") };
    Ok(request)
}

#[test]
fn arguments_as_kubectl_has_them() {
    let request = parse(&["-f", "a", "--filename=-", "-n", "ns", "-o", "json"]).unwrap();
    assert_eq!(request.files, ["a", "-"]);
    assert_eq!((request.namespace.as_str(), request.format.is_json), ("ns", true));
    assert!(!request.server.is_named());
    let request = parse(&["-fa", "--kubeconfig=k", "--driver=d"]).unwrap();
    assert_eq!((request.namespace.as_str(), request.format.is_json), ("default", false));
    assert!(request.server.is_named() && request.driver.as_deref() == Some("d"));
}

#[test]
fn wrong_arguments_are_a_check_that_could_not_be_made() {
    for args in [&[][..], &["-f"], &["-f", "a", "-o", "yaml"], &["-f", "a", "--nosuch"]] {
        assert_eq!(parse(args).unwrap_err().exit_code, 3, "{args:?}");
    }
    let help = parse(&["--help"]).unwrap_err();
    assert!(help.exit_code == 0 && help.text.contains("Exit codes:"), "{help:?}");
}

async fn checked(manifest: &str, args: &[&str]) -> Output {
    let request = parse(&[&["-f", "x"], args].concat()).unwrap();
    run(None, &request, &[manifest.to_owned()]).await
}

const MANIFEST: &str = r#"
kind: StatefulSet
metadata: {name: w}
spec:
  template:
    spec:
      serviceAccountName: p
      containers:
      - name: csi-provisioner
        image: csi-provisioner:v6.3.0
        args: ["--leader-election", "--feature-gates=Topology=false"]
---
{kind: ClusterRole, metadata: {name: c}, rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]}
---
{kind: ClusterRoleBinding, roleRef: {kind: ClusterRole, name: c}, subjects: [{kind: ServiceAccount, name: p, namespace: default}]}
"#;

#[tokio::test]
async fn a_manifest_with_everything_has_nothing_to_do() {
    let report = checked(MANIFEST, &["--driver=d.example.com"]).await;
    assert_eq!(report.exit_code, 0, "{}", report.text);
    assert!(report.text.contains("\n  ok         default/d-example-com: "), "{}", report.text);
    assert!(report.text.ends_with("\nNothing to do before the switch.\n"));
}

#[tokio::test]
async fn each_kind_of_trouble_has_its_exit_code() {
    for (from, to, driver, code) in [
        ("Topology=false", "Topology=false", None, 3),
        ("Topology=false", "Nonsense=true", Some("d"), 2),
        ("rules: [{", "norules: [{", Some("d"), 2),
        ("kind: StatefulSet", "kind: StatefulSet\nspec: {", Some("d"), 3),
        ("csi-provisioner", "another", Some("d"), 3),
        (
            "      serviceAccountName: p",
            "      serviceAccountName: p\n      terminationGracePeriodSeconds: 5",
            Some("d"),
            1,
        ),
    ] {
        let args: Vec<String> = driver.iter().map(|name| format!("--driver={name}")).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let report = checked(&MANIFEST.replace(from, to), &args).await;
        assert_eq!(report.exit_code, code, "{to}: {} {:?}", report.text, report.errors);
    }
}

#[tokio::test]
async fn json_has_the_findings_and_the_exit_code() {
    let report = checked(MANIFEST, &["--driver=d", "-o", "json"]).await;
    let json: serde_json::Value = serde_json::from_str(&report.text).unwrap();
    assert_eq!(json["exitCode"], 0);
    let findings = json["workloads"][0]["findings"].as_array().unwrap();
    let lease = findings.iter().find(|it| it["section"] == "lease").unwrap();
    assert_eq!((&lease["severity"], &lease["subject"]), (&"ok".into(), &"default/d".into()));
}
