use super::*;
use crate::check::testing::{flags, workload};

fn namespaces() -> Namespaces {
    Namespaces { lease: "ns".to_owned(), capacity: String::new() }
}

/// A manifest with a `ClusterRole` of these rules for the account, in YAML.
fn manifest(rules: &str) -> Manifest {
    let text = format!(
        "{{kind: ClusterRole, metadata: {{name: c}}, rules: [{rules}]}}
---
{{kind: ClusterRoleBinding, roleRef: {{kind: ClusterRole, name: c}}, subjects: [{{kind: ServiceAccount, name: p, namespace: ns}}]}}"
    );
    Manifest::parse(&[text], "ns")
}

fn check_rules(rules: &str, args: &[&str], reads_secrets: Option<bool>) -> Vec<Finding> {
    let (flags, workload) = (flags(args), workload("Deployment", args));
    let uses = Uses { flags: &flags, workload: &workload, reads_secrets };
    by_roles(&manifest(rules), uses, &namespaces())
}

const ALL: &str = r#"{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}"#;

#[test]
fn all_rights_are_one_line() {
    let found = check_rules(ALL, &["--leader-election"], None);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].severity, found[0].subject.as_str()),
        (Severity::Ok, "ServiceAccount ns/p")
    );
}

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
        (
            "volumeattributesclasses",
            &["--feature-gates=VolumeAttributesClass=false"],
            &[Severity::Ok],
        ),
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
fn a_missing_right_comes_with_the_rule_to_add() {
    let rules = ALL.replace(
        r#"resources: ["*"]"#,
        "resources: [persistentvolumes, persistentvolumeclaims, storageclasses, volumeattachments, csinodes, nodes, volumeattributesclasses, volumesnapshots, volumesnapshotcontents, secrets]",
    );
    let found = check_rules(&rules, &[], None).remove(0);
    assert_eq!(found.subject, "lacks create, patch on events");
    assert_eq!(found.text, "add to the ClusterRole");
    let rule = r#"- {apiGroups: [""], resources: ["events"], verbs: ["create", "patch"]}"#;
    assert_eq!(found.rule.as_deref(), Some(rule));
}

#[test]
fn without_the_bindings_or_roles_nothing_is_called_missing() {
    let (flags, workload) = (flags(&[]), workload("Deployment", &[]));
    let uses = Uses { flags: &flags, workload: &workload, reads_secrets: None };
    for (text, expected) in [
        ("{kind: Secret}", "no binding in the manifest names it"),
        (
            "{kind: ClusterRoleBinding, roleRef: {kind: ClusterRole, name: c}, subjects: [{kind: ServiceAccount, name: p, namespace: ns}]}",
            "the manifest lacks its ClusterRole c",
        ),
    ] {
        let manifest = Manifest::parse(&[text.to_owned()], "ns");
        let found = by_roles(&manifest, uses, &namespaces());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].severity, Severity::Unchecked);
        assert!(found[0].text.contains(expected), "{found:?}");
    }
}
