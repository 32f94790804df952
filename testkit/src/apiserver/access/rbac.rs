//! Role-based access control by the roles and bindings that are in the store now, with kube-apiserver's words
//! for a refusal.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::rbac::v1::{PolicyRule, RoleBinding, RoleRef, Subject};
use parking_lot::Mutex;
use serde::Deserialize as _;

use crate::apiserver::{ApiServer, User, object::Object, request_info::RequestInfo};

/// The group whose members may do everything, whatever the roles say.
pub const SUPERUSERS: &str = "system:masters";

/// What a request wants to do. Empty strings stand for what a request doesn't name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt<'a> {
    /// A verb on a resource.
    Resource {
        /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        /// The object's name as it stands in the URL.
        name: &'a str,
    },
    /// A verb on a path that is no resource, such as `/version`.
    Path { verb: &'a str, path: &'a str },
}

impl<'a> From<&'a RequestInfo> for Attempt<'a> {
    fn from(info: &'a RequestInfo) -> Self {
        let RequestInfo { verb, group, resource, subresource, namespace, name, path, .. } = info;
        if info.is_resource {
            Self::Resource { verb, group, resource, subresource, namespace, name }
        } else {
            Self::Path { verb, path }
        }
    }
}

/// Whether a rule allows `attempt`: of paths, a trailing `*` stands for any ending.
fn covers(rule: &PolicyRule, attempt: &Attempt<'_>) -> bool {
    let has = |list: &[String], value: &str| list.iter().any(|own| own == "*" || own == value);
    match *attempt {
        Attempt::Resource { verb, group, resource, subresource, name, .. } => {
            let (groups, names) =
                (all(rule.api_groups.as_ref()), all(rule.resource_names.as_ref()));
            has(&rule.verbs, verb)
                && has(groups, group)
                && all(rule.resources.as_ref()).iter().any(|own| is_of(own, resource, subresource))
                && (names.is_empty() || names.iter().any(|own| own == name))
        }
        Attempt::Path { verb, path } => {
            has(&rule.verbs, verb)
                && all(rule.non_resource_urls.as_ref()).iter().any(|own| {
                    match own.strip_suffix('*') {
                        Some(prefix) => path.starts_with(prefix),
                        None => own == path,
                    }
                })
        }
    }
}

fn all(list: Option<&Vec<String>>) -> &[String] {
    list.map(Vec::as_slice).unwrap_or_default()
}

/// `*` is every resource and subresource, `*/status` that subresource of every resource; a resource's own name
/// does not cover its subresources.
fn is_of(own: &str, resource: &str, subresource: &str) -> bool {
    match own.split_once('/') {
        None => own == "*" || (subresource.is_empty() && own == resource),
        Some(("*", sub)) => sub == subresource,
        Some((own, sub)) => own == resource && sub == subresource,
    }
}

// === Policy ===

/// What a binding grants, and where (`None`: everywhere). A role that is missing grants nothing.
#[derive(Debug, Clone, PartialEq)]
struct Grant {
    namespace: Option<String>,
    rules: Vec<PolicyRule>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    User(String),
    Group(String),
}

/// All bindings, by whom they name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Policy {
    grants: BTreeMap<Holder, Vec<Grant>>,
}

/// Roles by namespace (empty: cluster roles) and name.
type Roles = BTreeMap<(String, String), Vec<PolicyRule>>;

impl Policy {
    /// What doesn't have the shape of a role or binding grants nothing.
    fn new(roles: &[Arc<Object>], bindings: &[Arc<Object>]) -> Self {
        let rules_of =
            |role: &Object| serde_json::from_value(role.value().get("rules")?.clone()).ok();
        let key = |role: &Object| (role.meta("namespace").to_owned(), role.meta("name").to_owned());
        let roles: Roles =
            roles.iter().map(|role| (key(role), rules_of(role).unwrap_or_default())).collect();
        let mut grants = BTreeMap::<_, Vec<Grant>>::new();
        for object in bindings {
            let Ok(binding) = RoleBinding::deserialize(object.value()) else { continue };
            let RoleRef { kind, name, .. } = binding.role_ref;
            let namespace = binding.metadata.namespace;
            let of_role = namespace.clone().filter(|_| kind == "Role").unwrap_or_default();
            let granted = roles.get(&(of_role, name)).cloned().unwrap_or_default();
            for subject in binding.subjects.iter().flatten() {
                let grant = Grant { namespace: namespace.clone(), rules: granted.clone() };
                grants.entry(holder(subject)).or_default().push(grant);
            }
        }
        Self { grants }
    }

    /// Whether `user` may do what `attempt` says.
    pub(crate) fn allows(&self, user: &User, attempt: &Attempt<'_>) -> bool {
        let namespace = match attempt {
            Attempt::Resource { namespace, .. } => namespace,
            Attempt::Path { .. } => "",
        };
        let mut granted = self.grants_of(user, namespace).flat_map(|grant| &grant.rules);
        user.groups.iter().any(|group| group == SUPERUSERS) || granted.any(|it| covers(it, attempt))
    }

    /// The rules that hold for `user` in `namespace`, those of cluster-wide bindings included.
    pub(crate) fn rules(&self, user: &User, namespace: &str) -> Vec<PolicyRule> {
        let all = || vec!["*".to_owned()];
        let everything = [
            PolicyRule {
                verbs: all(),
                api_groups: Some(all()),
                resources: Some(all()),
                ..PolicyRule::default()
            },
            PolicyRule { verbs: all(), non_resource_urls: Some(all()), ..PolicyRule::default() },
        ];
        let is_superuser = user.groups.iter().any(|group| group == SUPERUSERS);
        let granted = self.grants_of(user, namespace).flat_map(|grant| &grant.rules);
        everything.into_iter().filter(|_| is_superuser).chain(granted.cloned()).collect()
    }

    /// The grants of a user's name and groups that hold in `namespace` (empty: cluster scope).
    fn grants_of(&self, user: &User, namespace: &str) -> impl Iterator<Item = &Grant> {
        let groups = user.groups.iter().cloned().map(Holder::Group);
        let holders = std::iter::once(Holder::User(user.name.clone())).chain(groups);
        let grants = holders.filter_map(|holder| self.grants.get(&holder)).flatten();
        grants.filter(move |grant| grant.namespace.as_deref().is_none_or(|own| own == namespace))
    }
}

/// Whom a binding's subject is.
fn holder(subject: &Subject) -> Holder {
    let Subject { kind, name, namespace, .. } = subject;
    match kind.as_str() {
        "Group" => Holder::Group(name.clone()),
        "ServiceAccount" => {
            let namespace = namespace.as_deref().unwrap_or_default();
            Holder::User(format!("system:serviceaccount:{namespace}:{name}"))
        }
        _ => Holder::User(name.clone()),
    }
}

// === Rbac ===

/// Says who may do what. A role or binding counts from the request after the one that wrote it; as long as none
/// was written, asking looks at none.
#[derive(Debug, Default)]
pub struct Rbac(Mutex<Indexed>);

/// A policy and what it was made from.
#[derive(Debug, Default)]
struct Indexed {
    /// The store's revision up to which the policy is known to hold.
    revision: u64,
    /// How many roles and bindings there are, and the revision of the latest. Every write changes one.
    state: [(usize, u64); 2],
    policy: Arc<Policy>,
}

impl Rbac {
    /// The policy as it is now.
    pub(crate) fn policy(&self, server: &ApiServer) -> Arc<Policy> {
        // Before the objects are read: what is written meanwhile is looked at the next time.
        let revision = server.revision();
        let mut indexed = self.0.lock();
        if indexed.revision != revision {
            indexed.revision = revision;
            let objects = |kinds: [&str; 2]| kinds.map(|kind| server.objects(kind)).concat();
            let both =
                [objects(["ClusterRole", "Role"]), objects(["ClusterRoleBinding", "RoleBinding"])];
            let latest = |of: &Vec<Arc<Object>>| of.iter().map(|o| o.revision()).max().unwrap_or(0);
            let state = both.each_ref().map(|of| (of.len(), latest(of)));
            if state != indexed.state {
                let [roles, bindings] = both;
                (indexed.state, indexed.policy) = (state, Arc::new(Policy::new(&roles, &bindings)));
            }
        }
        Arc::clone(&indexed.policy)
    }

    /// Asked before each request; what stands behind `is forbidden:` where it is refused.
    pub(in crate::apiserver) fn authorize(
        &self,
        server: &ApiServer,
        user: &User,
        request: &RequestInfo,
    ) -> Result<(), String> {
        let attempt = Attempt::from(request);
        let is_allowed = self.policy(server).allows(user, &attempt);
        if is_allowed { Ok(()) } else { Err(cannot(&user.name, &attempt)) }
    }
}

/// What stands behind `is forbidden:`.
fn cannot(user: &str, attempt: &Attempt<'_>) -> String {
    match *attempt {
        Attempt::Path { verb, path } => format!("User {user:?} cannot {verb} path {path:?}"),
        Attempt::Resource { verb, group, resource, subresource, namespace, .. } => {
            let full = match subresource {
                "" => resource.to_owned(),
                sub => format!("{resource}/{sub}"),
            };
            let place = match namespace {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            format!("User {user:?} cannot {verb} resource {full:?} in API group {group:?} {place}")
        }
    }
}
