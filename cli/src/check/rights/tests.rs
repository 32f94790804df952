use super::*;
use crate::check::testing::{flags, workload};

fn namespaces() -> Namespaces {
    Namespaces { lease: "ns".to_owned(), capacity: String::new() }
}

const BINDING: &str = "{kind: ClusterRoleBinding, roleRef: {kind: ClusterRole, name: c}, subjects: [{kind: ServiceAccount, name: p, namespace: ns}]}";

/// A manifest with a `ClusterRole` of these rules for the account, in YAML.
fn manifest(rules: &str) -> Manifest {
    let role = format!("{{kind: ClusterRole, metadata: {{name: c}}, rules: [{rules}]}}");
    Manifest::parse(&[role, BINDING.to_owned()], "ns")
}

fn check_rules(rules: &str, args: &[&str], reads_secrets: Option<bool>) -> Vec<Finding> {
    let (flags, workload) = (flags(args), workload("Deployment", args));
    let uses = Uses { flags: &flags, workload: &workload, reads_secrets };
    by_roles(&manifest(rules), uses, &namespaces())
}

const WITHOUT_CLASSES: &[&str] = &["--feature-gates=VolumeAttributesClass=false"];
const ALL: &str = r#"{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}"#;

#[test]
fn what_nothing_works_without_is_fatal_and_what_perhaps_is_needed_a_note() {
    // All on the resources that are not under test.
    let rest = |except: &str| {
        let resources = NEEDS.iter().map(|need| need.resource).filter(|it| *it != except);
        let resources: Vec<&str> = resources.collect();
        format!(r#"{{apiGroups: ["*"], resources: [{}], verbs: ["*"]}}"#, resources.join(", "))
    };
    for (resource, args, severities) in [
        ("storageclasses", &[][..], &[Severity::Fatal][..]),
        // Without "delete" and "patch" volumes are at least created.
        ("persistentvolumes", &[], &[Severity::Fatal, Severity::ToDo]),
        ("events", &[], &[Severity::ToDo]),
        ("leases", &["--leader-election"], &[Severity::Fatal, Severity::ToDo]),
        ("leases", &[], &[Severity::Ok]),
        ("volumesnapshots", &[], &[Severity::Note]),
        ("nodes", &[], &[Severity::Note]),
        ("nodes", &["--strict-topology"], &[Severity::ToDo]),
        ("nodes", &["--feature-gates=Topology=false"], &[Severity::Ok]),
        ("volumeattributesclasses", WITHOUT_CLASSES, &[Severity::Ok]),
        ("csistoragecapacities", &[], &[Severity::Ok]),
        ("csistoragecapacities", &["--enable-capacity"], &[Severity::ToDo]),
        ("pods", &["--enable-capacity"], &[Severity::ToDo]),
        ("replicasets", &["--enable-capacity"], &[Severity::Ok]),
        ("replicasets", &["--enable-capacity", "--capacity-ownerref-level=2"], &[Severity::ToDo]),
    ] {
        let found = check_rules(&rest(resource), args, None);
        let found: Vec<Severity> = found.iter().map(|it| it.severity).collect();
        assert_eq!(found, severities, "{resource} {args:?}");
    }
}

#[test]
fn classes_decide_whether_secrets_are_needed() {
    let rules = ALL.replace(r#"resources: ["*"]"#, "resources: [persistentvolumes, persistentvolumeclaims, storageclasses, events, volumeattachments, csinodes, nodes, volumeattributesclasses, volumesnapshots, volumesnapshotcontents]");
    for (reads, severity) in
        [(None, Severity::Note), (Some(true), Severity::ToDo), (Some(false), Severity::Ok)]
    {
        assert_eq!(check_rules(&rules, &[], reads)[0].severity, severity, "{reads:?}");
    }
}

#[test]
fn without_its_role_nothing_is_called_missing() {
    let manifest = Manifest::parse(&[BINDING.to_owned()], "ns");
    let (flags, workload) = (flags(&[]), workload("Deployment", &[]));
    let uses = Uses { flags: &flags, workload: &workload, reads_secrets: None };
    let found = by_roles(&manifest, uses, &namespaces());
    assert_eq!((found.len(), found[0].severity), (1, Severity::Unchecked));
    assert!(found[0].text.contains("the manifest lacks its ClusterRole c"), "{found:?}");
}
