//! Rules, bindings and the real server's words for what they refuse.

use serde_json::json;

use super::*;

const SC: &str = "system:serviceaccount:default:csi-provisioner";

fn resource<'a>(verb: &'a str, resource: &'a str, namespace: &'a str) -> Attempt<'a> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    Attempt::Resource { verb, group: "", resource, subresource, namespace, name: "" }
}

fn rule(value: Value) -> Rule {
    serde_json::from_value(value).unwrap()
}

fn role(name: &str, namespace: Option<&str>, rules: &Value) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace}, "rules": rules})
}

fn binding(name: &str, namespace: Option<&str>, role: (&str, &str), subject: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"kind": role.0, "name": role.1, "apiGroup": "rbac.authorization.k8s.io"},
        "subjects": [subject],
    })
}

fn named_user(name: &str) -> Value {
    json!({"kind": "User", "name": name})
}

#[test]
fn a_rule_covers_what_its_lists_name() {
    let reads = || json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]});
    for (rule_value, attempt, covered) in [
        (reads(), resource("get", "pods", "sc"), true),
        (reads(), resource("delete", "pods", "sc"), false),
        (reads(), resource("get", "secrets", "sc"), false),
        (reads(), resource("get", "pods/status", "sc"), false),
        (reads(), Attempt::Path { verb: "get", path: "/pods" }, false),
        (
            json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
            resource("escalate", "pods/log", "sc"),
            true,
        ),
        (
            json!({"apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"]}),
            resource("get", "pods", "sc"),
            false,
        ),
        (
            json!({"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}),
            resource("patch", "pods/status", "sc"),
            true,
        ),
        (
            json!({"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}),
            resource("patch", "pods", "sc"),
            false,
        ),
        (
            json!({"apiGroups": [""], "resources": ["*/status"], "verbs": ["patch"]}),
            resource("patch", "nodes/status", ""),
            true,
        ),
        (
            json!({"apiGroups": [""], "resources": ["*/status"], "verbs": ["patch"]}),
            resource("patch", "nodes", ""),
            false,
        ),
    ] {
        assert_eq!(rule(rule_value.clone()).covers(&attempt), covered, "{rule_value} {attempt:?}");
    }
}

#[test]
fn resource_names_limit_a_rule_to_those_objects() {
    let rule = rule(json!({
        "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"],
        "resourceNames": ["a"],
    }));
    for (name, covered) in [("a", true), ("b", false), ("", false)] {
        let attempt = Attempt::Resource {
            verb: "get",
            group: "",
            resource: "secrets",
            subresource: "",
            namespace: "sc",
            name,
        };
        assert_eq!(rule.covers(&attempt), covered, "{name}");
    }
}

#[test]
fn paths_match_whole_or_by_a_trailing_star() {
    let rule = rule(json!({"nonResourceURLs": ["/version", "/api/*"], "verbs": ["get"]}));
    for (path, covered) in
        [("/version", true), ("/version/x", false), ("/api/v1", true), ("/api", false)]
    {
        assert_eq!(rule.covers(&Attempt::Path { verb: "get", path }), covered, "{path}");
    }
    assert!(!rule.covers(&Attempt::Path { verb: "post", path: "/version" }));
}

#[test]
fn a_role_binding_holds_in_its_namespace_only_even_for_a_cluster_role() {
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let policy = Policy::new(&Objects {
        cluster_roles: vec![role("reader", None, &rules)],
        role_bindings: vec![binding(
            "read",
            Some("sc"),
            ("ClusterRole", "reader"),
            &named_user("jane"),
        )],
        ..Objects::default()
    });
    assert_eq!(
        policy.decide(&User::new("jane"), &resource("get", "pods", "sc")),
        Decision::Allowed(
            "RBAC: allowed by RoleBinding \"read/sc\" of ClusterRole \"reader\" to User \"jane\""
                .to_owned()
        )
    );
    let refused = Decision::NoOpinion(String::new());
    assert_eq!(policy.decide(&User::new("jane"), &resource("get", "pods", "other")), refused);
    assert_eq!(policy.decide(&User::new("jane"), &resource("get", "pods", "")), refused);
    assert_eq!(policy.decide(&User::new("joe"), &resource("get", "pods", "sc")), refused);
}

#[test]
fn service_accounts_and_groups_are_subjects_too() {
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let account =
        json!({"kind": "ServiceAccount", "name": "csi-provisioner", "namespace": "default"});
    let group = json!({"kind": "Group", "name": "readers"});
    let policy = Policy::new(&Objects {
        cluster_roles: vec![role("reader", None, &rules)],
        cluster_role_bindings: vec![
            binding("a", None, ("ClusterRole", "reader"), &account),
            binding("b", None, ("ClusterRole", "reader"), &group),
        ],
        ..Objects::default()
    });
    let attempt = resource("get", "pods", "any");
    let groups = vec!["readers".to_owned()];
    let allowed = |user: &User| matches!(policy.decide(user, &attempt), Decision::Allowed(_));
    assert!(allowed(&User::new(SC)));
    assert!(allowed(&User { name: "joe".to_owned(), groups }));
    assert!(!allowed(&User::new("system:serviceaccount:other:csi-provisioner")));
}

#[test]
fn a_binding_whose_role_is_missing_grants_nothing_and_says_so() {
    let policy = Policy::new(&Objects {
        cluster_role_bindings: vec![binding(
            "b",
            None,
            ("ClusterRole", "gone"),
            &named_user("jane"),
        )],
        ..Objects::default()
    });
    assert_eq!(
        policy.decide(&User::new("jane"), &resource("get", "pods", "")),
        Decision::NoOpinion(
            "RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found".to_owned()
        )
    );
}

#[test]
fn members_of_the_superuser_group_need_no_role() {
    let groups = vec![SUPERUSERS.to_owned()];
    let admin = User { name: "admin".to_owned(), groups };
    let policy = Policy::default();
    assert!(matches!(
        policy.decide(&admin, &resource("delete", "pods", "sc")),
        Decision::Allowed(_)
    ));
    assert_eq!(policy.rules(&admin, "sc"), Rule::everything());
}

#[test]
fn malformed_objects_grant_nothing_and_do_not_disturb_others() {
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let policy = Policy::new(&Objects {
        cluster_roles: vec![json!(7), role("reader", None, &rules)],
        cluster_role_bindings: vec![
            json!({"metadata": {}}),
            binding("b", None, ("ClusterRole", "reader"), &named_user("jane")),
        ],
        ..Objects::default()
    });
    assert_eq!(policy.rules(&User::new("jane"), "").len(), 1);
}

#[test]
fn a_refusal_reads_as_the_real_server_words_it() {
    let list = |namespace| Attempt::Resource {
        verb: "list",
        group: "",
        resource: "persistentvolumeclaims",
        subresource: "",
        namespace,
        name: "",
    };
    let patch = Attempt::Resource {
        verb: "patch",
        group: "storage.k8s.io",
        resource: "csistoragecapacities",
        subresource: "status",
        namespace: "",
        name: "x",
    };
    for (attempt, reason, words) in [
        (
            list(""),
            "",
            r#"User "u" cannot list resource "persistentvolumeclaims" in API group "" at the cluster scope"#,
        ),
        (
            list("sc"),
            "",
            r#"User "u" cannot list resource "persistentvolumeclaims" in API group "" in the namespace "sc""#,
        ),
        (
            patch,
            "RBAC: because",
            r#"User "u" cannot patch resource "csistoragecapacities/status" in API group "storage.k8s.io" at the cluster scope: RBAC: because"#,
        ),
        (
            Attempt::Path { verb: "get", path: "/metrics" },
            "",
            r#"User "u" cannot get path "/metrics""#,
        ),
    ] {
        assert_eq!(refusal("u", &attempt, reason), words);
    }
}
