//! Role-based access control by the roles and bindings that are in the store now, with kube-apiserver's words
//! for a refusal.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde::Deserialize;

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

/// A rule of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rule {
    /// Verbs, or `*`.
    pub(crate) verbs: Vec<String>,
    /// API groups, or `*`.
    pub(crate) api_groups: Vec<String>,
    /// Resources: `pods`, `pods/status`, `*/status` or `*`.
    pub(crate) resources: Vec<String>,
    /// Names of objects; empty for all.
    #[serde(rename = "resourceNames")]
    pub(crate) names: Vec<String>,
    /// Paths that are no resources; a trailing `*` stands for any ending.
    #[serde(rename = "nonResourceURLs")]
    pub(crate) paths: Vec<String>,
}

impl Rule {
    /// Whether this rule allows `attempt`.
    fn covers(&self, attempt: &Attempt<'_>) -> bool {
        let has = |list: &[String], value: &str| list.iter().any(|own| own == "*" || own == value);
        match *attempt {
            Attempt::Resource { verb, group, resource, subresource, name, .. } => {
                has(&self.verbs, verb)
                    && has(&self.api_groups, group)
                    && self.resources.iter().any(|own| is_of(own, resource, subresource))
                    && (self.names.is_empty() || self.names.iter().any(|own| own == name))
            }
            Attempt::Path { verb, path } => {
                has(&self.verbs, verb)
                    && self.paths.iter().any(|own| match own.strip_suffix('*') {
                        Some(prefix) => path.starts_with(prefix),
                        None => own == path,
                    })
            }
        }
    }
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
#[derive(Debug, Clone, PartialEq, Eq)]
struct Grant {
    namespace: Option<String>,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    User(String),
    Group(String),
}

/// All bindings, by whom they name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    grants: BTreeMap<Holder, Vec<Grant>>,
}

/// Roles by namespace (empty: cluster roles) and name.
type Roles = BTreeMap<(String, String), Vec<Rule>>;

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
            let Ok(binding) = Binding::deserialize(object.value()) else { continue };
            let namespace =
                Some(object.meta("namespace")).filter(|namespace| !namespace.is_empty());
            for subject in &binding.subjects {
                let granted = binding.role_ref.rules(namespace, &roles);
                let grant = Grant { namespace: namespace.map(str::to_owned), rules: granted };
                grants.entry(subject.holder()).or_default().push(grant);
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
        user.groups.iter().any(|group| group == SUPERUSERS) || granted.any(|it| it.covers(attempt))
    }

    /// The rules that hold for `user` in `namespace`, those of cluster-wide bindings included.
    pub(crate) fn rules(&self, user: &User, namespace: &str) -> Vec<Rule> {
        let all = || vec!["*".to_owned()];
        let everything = [
            Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
            Rule { verbs: all(), paths: all(), ..Rule::default() },
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

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Binding {
    role_ref: RoleRef,
    #[serde(default)]
    subjects: Vec<Subject>,
}

#[derive(Debug, Deserialize)]
struct RoleRef {
    kind: String,
    name: String,
}

impl RoleRef {
    fn rules(&self, namespace: Option<&str>, roles: &Roles) -> Vec<Rule> {
        let namespace = namespace.filter(|_| self.kind == "Role").unwrap_or_default();
        roles.get(&(namespace.to_owned(), self.name.clone())).cloned().unwrap_or_default()
    }
}

#[derive(Debug, Deserialize)]
struct Subject {
    kind: String,
    name: String,
    #[serde(default)]
    namespace: String,
}

impl Subject {
    fn holder(&self) -> Holder {
        let Self { kind, name, namespace } = self;
        match kind.as_str() {
            "Group" => Holder::Group(name.clone()),
            "ServiceAccount" => Holder::User(format!("system:serviceaccount:{namespace}:{name}")),
            _ => Holder::User(name.clone()),
        }
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
}

impl Rbac {
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
