//! The roles of the manifest: which rules they grant to a ServiceAccount.

use serde_json::{Value, json};

use super::manifest::{Manifest, list, text};
use csi_provisioner::kube::access::Rules;

/// A service account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account<'a> {
    /// Its namespace.
    pub(super) namespace: &'a str,
    /// Its name.
    pub(super) name: &'a str,
}

impl Account<'_> {
    /// Its name as a user.
    pub(super) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// The groups that it is in.
    pub(super) fn groups(&self) -> [String; 3] {
        let of_namespace = format!("system:serviceaccounts:{}", self.namespace);
        ["system:serviceaccounts".to_owned(), of_namespace, "system:authenticated".to_owned()]
    }
}

/// What the roles of the manifest grant to an account, in one scope.
#[derive(Debug, Default)]
pub(super) struct Granted {
    pub(super) rules: Rules,
    /// Whether a binding names the account.
    pub(super) is_bound: bool,
    /// Roles that bindings name and the manifest lacks, as `Kind name`.
    pub(super) absent: Vec<String>,
}

/// The rules that hold in `namespace`; `None`: in the whole cluster.
pub(super) fn granted(
    manifest: &Manifest,
    account: Account<'_>,
    namespace: Option<&str>,
) -> Granted {
    let everywhere = manifest.of_kind("ClusterRoleBinding");
    let here = manifest
        .of_kind("RoleBinding")
        .filter(|binding| Some(manifest.namespace(binding)) == namespace);
    let bindings = everywhere.chain(here).filter(|binding| names(manifest, binding, account));
    let mut granted = Granted::default();
    let mut rules = Vec::new();
    for binding in bindings {
        granted.is_bound = true;
        match role(manifest, binding) {
            Some(role) => rules.extend(rules_of(manifest, role)),
            None => granted.absent.push(format!(
                "{} {}",
                text(binding, "/roleRef/kind"),
                text(binding, "/roleRef/name")
            )),
        }
    }
    granted.rules = parsed(rules);
    granted
}

/// The rules of roles; what is no rule grants nothing.
fn parsed(mut rules: Vec<Value>) -> Rules {
    let parse = |rules: &[Value]| serde_json::from_value(json!({"resourceRules": rules}));
    rules.retain(|rule| parse(std::slice::from_ref(rule)).is_ok_and(|_: Rules| true));
    parse(&rules).unwrap_or_default()
}

/// Whether a subject of the binding is the account, or a group that it is in.
fn names(manifest: &Manifest, binding: &Value, account: Account<'_>) -> bool {
    list(binding, "/subjects").iter().any(|subject| {
        let name = text(subject, "/name");
        match text(subject, "/kind") {
            "ServiceAccount" => {
                let namespace = match text(subject, "/namespace") {
                    "" => manifest.namespace(binding),
                    namespace => namespace,
                };
                name == account.name && namespace == account.namespace
            }
            "User" => name == account.user(),
            "Group" => account.groups().iter().any(|group| group == name),
            _ => false,
        }
    })
}

/// The role that the binding names.
fn role<'a>(manifest: &'a Manifest, binding: &'a Value) -> Option<&'a Value> {
    let (kind, name) = (text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"));
    let is_here = |role: &Value| {
        kind == "ClusterRole" || manifest.namespace(role) == manifest.namespace(binding)
    };
    manifest.of_kind(kind).find(|role| text(role, "/metadata/name") == name && is_here(role))
}

/// The rules of a role, with those that the cluster would aggregate into it.
fn rules_of(manifest: &Manifest, role: &Value) -> Vec<Value> {
    let selectors = list(role, "/aggregationRule/clusterRoleSelectors");
    let selected = |other: &&Value| selectors.iter().any(|selector| selects(selector, other));
    let aggregated = manifest.of_kind("ClusterRole").filter(selected);
    let roles = [role].into_iter().chain(aggregated);
    roles.flat_map(|role| list(role, "/rules")).cloned().collect()
}

/// Whether the role has all labels of the selector.
fn selects(selector: &Value, role: &Value) -> bool {
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let has = |(name, value): (&String, &Value)| {
        role.pointer("/metadata/labels").and_then(|labels| labels.get(name)) == Some(value)
    };
    labels.is_some_and(|labels| labels.iter().all(has))
}

#[cfg(test)]
mod tests {
    use super::*;
    use csi_provisioner::kube::access::Permission;

    const ACCOUNT: Account<'static> = Account { namespace: "ns", name: "p" };

    fn right(resource: &str) -> Permission<'_> {
        Permission { verb: "get", group: "", resource }
    }

    fn manifest(text: &str) -> Manifest {
        Manifest::parse(&[text.to_owned()], "ns")
    }

    const ROLES: &str = r#"
{kind: ClusterRole, metadata: {name: c}, rules: [{apiGroups: [""], resources: [a], verbs: [get]}],
 aggregationRule: {clusterRoleSelectors: [{matchLabels: {to: c}}]}}
---
{kind: ClusterRole, metadata: {name: more, labels: {to: c}}, rules: [{apiGroups: [""], resources: [b], verbs: ["*"]}]}
---
{kind: Role, metadata: {name: r, namespace: ns}, rules: [{apiGroups: [""], resources: [d], verbs: [get]}]}
---
{kind: ClusterRoleBinding, subjects: [{kind: ServiceAccount, name: p, namespace: ns}], roleRef: {kind: ClusterRole, name: c}}
---
{kind: RoleBinding, metadata: {namespace: ns}, subjects: [{kind: ServiceAccount, name: p}], roleRef: {kind: Role, name: r}}
---
{kind: RoleBinding, metadata: {namespace: other}, subjects: [{kind: Group, name: "system:serviceaccounts:ns"}], roleRef: {kind: Role, name: x}}
"#;

    #[test]
    fn rules_hold_where_their_binding_is() {
        let manifest = manifest(ROLES);
        for (namespace, resources) in
            [(None, &["a", "b"][..]), (Some("ns"), &["a", "b", "d"]), (Some("other"), &["a", "b"])]
        {
            let granted = granted(&manifest, ACCOUNT, namespace);
            let found = ["a", "b", "d"].into_iter().filter(|it| granted.rules.grant(right(it)));
            assert_eq!(found.collect::<Vec<_>>(), resources, "{namespace:?}");
            let absent = if namespace == Some("other") { vec!["Role x"] } else { vec![] };
            assert_eq!(granted.absent, absent);
        }
    }

    #[test]
    fn what_is_no_rule_of_a_role_grants_nothing() {
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["a"]});
        let broken = json!({"verbs": [false], "apiGroups": ["*"], "resources": ["*"]});
        assert!(parsed(vec![broken.clone(), rule]).grant(right("a")));
        assert!(!parsed(vec![broken]).grant(right("a")));
    }

    #[test]
    fn another_account_has_nothing() {
        let other = Account { namespace: "default", name: "p" };
        let granted = granted(&manifest(ROLES), other, Some("ns"));
        assert!(!granted.is_bound && !granted.rules.grant(right("a")));
    }
}
