//! Role-based access control, evaluated from the role and binding objects in the store.
//!
//! Owns the index from subjects to rules ([`Policy`]), the decision on one request ([`Policy::decide`])
//! and the words of a refusal ([`refusal`]), which are kube-apiserver's. Promises to be pure: the
//! same objects give the same answers. Leaves to others which user a request comes from, and when
//! the objects changed.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::apiserver::{User, request_info::RequestInfo};

/// The group whose members may do everything, whatever the roles say.
pub const SUPERUSERS: &str = "system:masters";

/// What a request wants to do, in RBAC's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt<'a> {
    /// A verb on a resource. Empty strings stand for what a request doesn't name.
    Resource {
        /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
        verb: &'a str,
        /// API group; empty for the core group.
        group: &'a str,
        /// Plural name.
        resource: &'a str,
        /// Subresource, such as `status`.
        subresource: &'a str,
        /// Namespace; empty at the cluster scope.
        namespace: &'a str,
        /// The object's name as it stands in the URL.
        name: &'a str,
    },
    /// A verb on a path that is no resource, such as `/version`.
    Path {
        /// The HTTP method in lower case.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
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

/// What the policy says to an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Allowed, and by which binding.
    Allowed(String),
    /// Not allowed; the text names bindings whose role is missing, or is empty.
    NoOpinion(String),
}

/// A rule of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// Verbs, or `*`.
    pub verbs: Vec<String>,
    /// API groups, or `*`.
    pub api_groups: Vec<String>,
    /// Resources: `pods`, `pods/status`, `*/status` or `*`.
    pub resources: Vec<String>,
    /// Names of objects; empty for all.
    #[serde(rename = "resourceNames")]
    pub names: Vec<String>,
    /// Paths that are no resources; a trailing `*` stands for any ending.
    #[serde(rename = "nonResourceURLs")]
    pub paths: Vec<String>,
}

/// A binding that names a subject: where it holds and what it grants.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Grant {
    /// `None`: everywhere.
    namespace: Option<String>,
    /// For [`Decision::Allowed`].
    because: String,
    role: Role,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Role {
    Rules(Vec<Rule>),
    /// The binding names a role that isn't there.
    Missing(String),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    User(String),
    Group(String),
}

/// The objects a [`Policy`] is made of, as they stand in the store.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    /// `ClusterRole`s.
    pub cluster_roles: Vec<Value>,
    /// `ClusterRoleBinding`s.
    pub cluster_role_bindings: Vec<Value>,
    /// `Role`s.
    pub roles: Vec<Value>,
    /// `RoleBinding`s.
    pub role_bindings: Vec<Value>,
}

/// All bindings, indexed by whom they name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    grants: BTreeMap<Holder, Vec<Grant>>,
}

// === impl Policy ===

impl Policy {
    /// Indexes the bindings. What doesn't have the shape of a role or binding grants nothing.
    pub fn new(objects: &Objects) -> Self {
        let roles = Roles::read(objects);
        let mut policy = Self::default();
        for value in objects.cluster_role_bindings.iter().chain(&objects.role_bindings) {
            if let Ok(binding) = Binding::deserialize(value) {
                policy.add(&binding, &roles);
            }
        }
        policy
    }

    fn add(&mut self, binding: &Binding, roles: &Roles) {
        for subject in &binding.subjects {
            let holder = subject.holder();
            let grant = Grant {
                namespace: binding.metadata.namespace.clone(),
                because: binding.because(subject),
                role: roles.find(binding),
            };
            self.grants.entry(holder).or_default().push(grant);
        }
    }

    /// Whether `user` may do what `attempt` says.
    pub fn decide(&self, user: &User, attempt: &Attempt<'_>) -> Decision {
        if user.groups.iter().any(|group| group == SUPERUSERS) {
            return Decision::Allowed(String::new());
        }
        let mut missing = Vec::new();
        for grant in self.grants_of(user, namespace_of(attempt)) {
            match &grant.role {
                Role::Rules(rules) if rules.iter().any(|rule| rule.covers(attempt)) => {
                    return Decision::Allowed(grant.because.clone());
                }
                Role::Rules(_) => {}
                Role::Missing(text) if missing.contains(text) => {}
                Role::Missing(text) => missing.push(text.clone()),
            }
        }
        Decision::NoOpinion(aggregate(&missing))
    }

    /// The rules that hold for `user` in `namespace`, those of cluster-wide bindings included.
    pub fn rules(&self, user: &User, namespace: &str) -> Vec<Rule> {
        let everything = user.groups.iter().any(|group| group == SUPERUSERS);
        let granted = self.grants_of(user, namespace).flat_map(|grant| match &grant.role {
            Role::Rules(rules) => rules.as_slice(),
            Role::Missing(_) => &[],
        });
        everything.then(Rule::everything).into_iter().flatten().chain(granted.cloned()).collect()
    }

    /// The grants of a user's name and groups that hold in `namespace` (empty: cluster scope).
    fn grants_of<'a>(
        &'a self,
        user: &'a User,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Grant> {
        let name = std::iter::once(Holder::User(user.name.clone()));
        let groups = user.groups.iter().cloned().map(Holder::Group);
        name.chain(groups)
            .filter_map(|holder| self.grants.get(&holder))
            .flatten()
            .filter(move |grant| grant.namespace.as_deref().is_none_or(|own| own == namespace))
    }
}

fn namespace_of<'a>(attempt: &Attempt<'a>) -> &'a str {
    match attempt {
        Attempt::Resource { namespace, .. } => namespace,
        Attempt::Path { .. } => "",
    }
}

/// Several errors as Kubernetes' `NewAggregate` prints them.
fn aggregate(missing: &[String]) -> String {
    match missing {
        [] => String::new(),
        [one] => format!("RBAC: {one}"),
        more => format!("RBAC: [{}]", more.join(", ")),
    }
}

// === impl Rule ===

impl Rule {
    /// What members of [`SUPERUSERS`] hold.
    fn everything() -> [Self; 2] {
        let all = || vec!["*".to_owned()];
        [
            Self { verbs: all(), api_groups: all(), resources: all(), ..Self::default() },
            Self { verbs: all(), paths: all(), ..Self::default() },
        ]
    }

    /// Whether this rule allows `attempt`.
    pub fn covers(&self, attempt: &Attempt<'_>) -> bool {
        match *attempt {
            Attempt::Resource { verb, group, resource, subresource, name, .. } => {
                has(&self.verbs, verb)
                    && has(&self.api_groups, group)
                    && self.resources.iter().any(|r| resource_matches(r, resource, subresource))
                    && (self.names.is_empty() || self.names.iter().any(|own| own == name))
            }
            Attempt::Path { verb, path } => {
                has(&self.verbs, verb) && self.paths.iter().any(|own| path_matches(own, path))
            }
        }
    }
}

fn has(list: &[String], value: &str) -> bool {
    list.iter().any(|own| own == "*" || own == value)
}

/// `*` is every resource and subresource, `*/status` that subresource of every resource; a
/// resource's own name does not cover its subresources.
fn resource_matches(own: &str, resource: &str, subresource: &str) -> bool {
    match own.split_once('/') {
        None => own == "*" || (subresource.is_empty() && own == resource),
        Some(("*", sub)) => sub == subresource,
        Some((own, sub)) => own == resource && sub == subresource,
    }
}

fn path_matches(own: &str, path: &str) -> bool {
    match own.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => own == path,
    }
}

// === Bindings and roles as they stand in the store ===

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
    namespace: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Binding {
    metadata: Metadata,
    role_ref: RoleRef,
    #[serde(default)]
    subjects: Vec<BoundSubject>,
}

#[derive(Debug, Deserialize)]
struct RoleRef {
    kind: String,
    name: String,
}

#[derive(Debug, Deserialize)]
struct BoundSubject {
    kind: String,
    name: String,
    #[serde(default)]
    namespace: String,
}

impl Binding {
    /// kube-apiserver's words for why something is allowed.
    fn because(&self, subject: &BoundSubject) -> String {
        let (kind, place) = match &self.metadata.namespace {
            None => ("ClusterRoleBinding", self.metadata.name.clone()),
            Some(namespace) => ("RoleBinding", format!("{}/{namespace}", self.metadata.name)),
        };
        let RoleRef { kind: role_kind, name: role } = &self.role_ref;
        let whom = subject.describe();
        format!("RBAC: allowed by {kind} {place:?} of {role_kind} {role:?} to {whom}")
    }
}

impl BoundSubject {
    fn holder(&self) -> Holder {
        match self.kind.as_str() {
            "Group" => Holder::Group(self.name.clone()),
            "ServiceAccount" => {
                Holder::User(format!("system:serviceaccount:{}:{}", self.namespace, self.name))
            }
            _ => Holder::User(self.name.clone()),
        }
    }

    fn describe(&self) -> String {
        match self.kind.as_str() {
            "ServiceAccount" => {
                format!("ServiceAccount {:?}", format!("{}/{}", self.name, self.namespace))
            }
            kind => format!("{kind} {:?}", self.name),
        }
    }
}

/// Roles by namespace (`None`: cluster roles) and name.
struct Roles(BTreeMap<(Option<String>, String), Vec<Rule>>);

impl Roles {
    fn read(objects: &Objects) -> Self {
        #[derive(Deserialize)]
        struct Role {
            metadata: Metadata,
            #[serde(default)]
            rules: Option<Vec<Rule>>,
        }
        let all = objects.cluster_roles.iter().chain(&objects.roles);
        let roles = all.filter_map(|value| Role::deserialize(value).ok());
        Self(
            roles
                .map(|role| {
                    let key = (role.metadata.namespace, role.metadata.name);
                    (key, role.rules.unwrap_or_default())
                })
                .collect(),
        )
    }

    fn find(&self, binding: &Binding) -> Role {
        let RoleRef { kind, name } = &binding.role_ref;
        let namespace = match kind.as_str() {
            "Role" => binding.metadata.namespace.clone(),
            _ => None,
        };
        match self.0.get(&(namespace, name.clone())) {
            Some(rules) => Role::Rules(rules.clone()),
            None => Role::Missing(format!(
                "{}.rbac.authorization.k8s.io {name:?} not found",
                kind.to_lowercase()
            )),
        }
    }
}

// === The words of a refusal ===

/// What stands behind `is forbidden:` when `user` may not do what `attempt` says; `reason` is
/// that of [`Decision::NoOpinion`].
pub fn refusal(user: &str, attempt: &Attempt<'_>, reason: &str) -> String {
    let text = cannot(user, attempt);
    if reason.is_empty() { text } else { format!("{text}: {reason}") }
}

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

#[cfg(test)]
mod tests;
