//! What every cluster grants from the start.
//!
//! Owns the roles that kube-apiserver makes by itself and that clients rely on: everybody who is
//! known may read what is served, and ask what else they may do. Leaves the many others out, which nobody here uses.

use serde_json::{Value, json};

/// The roles and bindings by which known users read discovery documents and ask for their rights.
pub fn roles() -> Vec<Value> {
    let paths = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    let reading = json!([{"nonResourceURLs": paths, "verbs": ["get"]}]);
    let asking = json!([{
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        "verbs": ["create"],
    }]);
    let granted = [("system:discovery", reading), ("system:basic-user", asking)];
    granted.into_iter().flat_map(|(name, rules)| to_known_users(name, &rules)).collect()
}

/// A role of these rules, bound to everybody who is known.
fn to_known_users(name: &str, rules: &Value) -> [Value; 2] {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": rules,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}],
    });
    [role, binding]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;

    use super::*;
    use crate::apiserver::{
        ApiServer, Options, User,
        access::{auth::service_account, authorizer::Rbac},
        hooks::{Authorizer as _, Hooks},
        request_info::RequestInfo,
    };

    #[tokio::test]
    async fn known_users_read_what_is_served_and_nothing_else() {
        let rbac = Rbac::default();
        let server = ApiServer::new(Options {
            hooks: Hooks { authorizer: Arc::new(Rbac::default()), ..Hooks::default() },
            ..Options::default()
        });
        for role in roles() {
            server.create(&role).unwrap();
        }
        let may = |user: &User, path: &str| {
            let info = RequestInfo::parse(&Method::GET, &path.parse().unwrap());
            rbac.authorize(&server, user, &info).is_ok()
        };
        let known = service_account("default", "csi-provisioner");
        for path in ["/apis/storage.k8s.io/v1", "/api/v1", "/version"] {
            assert!(may(&known, path), "{path}");
            assert!(!may(&User::new("somebody"), path), "{path}");
        }
        assert!(!may(&known, "/apis/storage.k8s.io/v1/storageclasses"));
    }
}
