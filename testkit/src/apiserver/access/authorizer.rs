//! Authorization against the roles that are in the server now.
//!
//! Owns keeping a [`Policy`] in step with the store. Promises that a role or binding counts from
//! the request after the one that wrote it, and that as long as nothing was written, asking costs
//! no look at any role. Leaves the decision to `rbac`.

use std::sync::Arc;

use parking_lot::Mutex;

use super::rbac::{Attempt, Decision, Objects, Policy, refusal};
use crate::apiserver::{
    ApiServer, User,
    hooks::{Authorizer, Denied},
    object::Object,
    request_info::RequestInfo,
};

/// The kinds a policy is made of.
const KINDS: [&str; 4] = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];

/// Says who may do what, by the roles and bindings in the server.
#[derive(Debug, Default)]
pub struct Rbac(Mutex<Indexed>);

/// A policy and what it was made from.
#[derive(Debug, Default)]
struct Indexed {
    /// The store's revision up to which the policy is known to hold.
    revision: u64,
    /// Of each kind: how many objects, and the revision of the latest. Every write changes one.
    state: [(usize, u64); KINDS.len()],
    policy: Arc<Policy>,
}

impl Rbac {
    /// The policy as it is now.
    pub fn policy(&self, server: &ApiServer) -> Arc<Policy> {
        // Before the objects are read: what is written meanwhile is looked at the next time.
        let revision = server.revision();
        let mut indexed = self.0.lock();
        if indexed.revision != revision {
            indexed.revision = revision;
            indexed.refresh(KINDS.map(|kind| server.objects(kind)));
        }
        Arc::clone(&indexed.policy)
    }
}

impl Indexed {
    /// Makes the policy anew when `objects` are not those it was made from.
    fn refresh(&mut self, objects: [Vec<Arc<Object>>; KINDS.len()]) {
        let state = objects.each_ref().map(|of_kind| {
            (of_kind.len(), of_kind.iter().map(|object| object.revision()).max().unwrap_or(0))
        });
        if state == self.state {
            return;
        }
        self.state = state;
        let values =
            |objects: Vec<Arc<Object>>| objects.iter().map(|o| o.value().clone()).collect();
        let [cluster_roles, cluster_role_bindings, roles, role_bindings] = objects.map(values);
        let objects = Objects { cluster_roles, cluster_role_bindings, roles, role_bindings };
        self.policy = Arc::new(Policy::new(&objects));
    }
}

impl Authorizer for Rbac {
    fn authorize(
        &self,
        server: &ApiServer,
        user: &User,
        request: &RequestInfo,
    ) -> Result<(), Denied> {
        let attempt = Attempt::from(request);
        match self.policy(server).decide(user, &attempt) {
            Decision::Allowed(_) => Ok(()),
            Decision::NoOpinion(reason) => {
                Err(Denied { message: refusal(&user.name, &attempt, &reason) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::apiserver::Options;

    fn may_list_pods(rbac: &Rbac, server: &ApiServer) -> bool {
        let info = RequestInfo::parse(&http::Method::GET, &"/api/v1/pods".parse().unwrap());
        rbac.authorize(server, &User::new("jane"), &info).is_ok()
    }

    #[tokio::test]
    async fn roles_and_bindings_count_from_the_next_request_on() {
        let (rbac, server) = (Rbac::default(), ApiServer::new(Options::default()));
        assert!(!may_list_pods(&rbac, &server));
        let role = json!({"kind": "ClusterRole", "metadata": {"name": "r"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]});
        let binding = json!({"kind": "ClusterRoleBinding", "metadata": {"name": "b"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
        server.create(&binding).unwrap();
        assert!(!may_list_pods(&rbac, &server));
        server.create(&role).unwrap();
        assert!(may_list_pods(&rbac, &server));
        server.merge("ClusterRole", "", "r", &json!({"rules": null})).unwrap();
        assert!(!may_list_pods(&rbac, &server));
    }

    #[tokio::test]
    async fn a_deleted_binding_grants_nothing_any_more() {
        let (rbac, server) = (Rbac::default(), ApiServer::new(Options::default()));
        server
            .create(&json!({"kind": "ClusterRole", "metadata": {"name": "r"},
                "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}))
            .unwrap();
        let binding = json!({"kind": "ClusterRoleBinding", "metadata": {"name": "b"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
        server.create(&binding).unwrap();
        assert!(may_list_pods(&rbac, &server));
        server.delete("ClusterRoleBinding", "", "b").unwrap();
        assert!(!may_list_pods(&rbac, &server));
    }

    #[tokio::test]
    async fn an_untouched_policy_is_not_made_again() {
        let (rbac, server) = (Rbac::default(), ApiServer::new(Options::default()));
        let before = rbac.policy(&server);
        server.namespace("other");
        assert!(Arc::ptr_eq(&before, &rbac.policy(&server)));
    }
}
