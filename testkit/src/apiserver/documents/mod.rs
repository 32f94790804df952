//! What stands at paths that are no resources.
//!
//! Owns the way from a path to health, version, discovery and `OpenAPI` documents, in the form the
//! client asks for. A pure function of what is served. Leaves the documents' content to
//! `discovery` and `openapi`, and whether the user may read them to `rbac`.

pub(super) mod discovery;
pub(super) mod openapi;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use serde_json::Value;

use self::{
    discovery::Resource,
    openapi::{Spec, V2_PROTOBUF, V2_PROTOBUF_ASKED},
};
use super::{
    ApiServer, Body, User,
    hooks::Extension,
    request_info::RequestInfo,
    resources::{Kind, ServerVersion},
    respond,
};

/// Answers GET requests for documents.
#[derive(Debug, Clone, Copy, Default)]
pub struct Documents;

impl Extension for Documents {
    fn answer(
        &self,
        server: &ApiServer,
        _user: &User,
        info: &RequestInfo,
        request: &Request<Bytes>,
    ) -> Option<Response<Body>> {
        if info.is_resource || info.verb != "get" {
            return None;
        }
        let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let document =
            at(&server.kinds(), server.version(), &info.path, accept.unwrap_or_default())?;
        let mut response = respond(200, document.body);
        let content_type = HeaderValue::from_static(document.content_type);
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
        Some(response)
    }
}

/// A document, ready to be sent with code 200.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Document {
    /// The media type of the bytes.
    pub content_type: &'static str,
    /// The bytes.
    pub body: Vec<u8>,
}

/// The document at `path` for a client that accepts `accept`; `None` where nothing stands.
pub(super) fn at(
    kinds: &[Arc<Kind>],
    version: ServerVersion,
    path: &str,
    accept: &str,
) -> Option<Document> {
    let minor = u32::from(version.minor);
    match path {
        "/healthz" | "/livez" | "/readyz" => {
            return Some(Document { content_type: "text/plain; charset=utf-8", body: "ok".into() });
        }
        "/version" | "/version/" => return Some(json(&discovery::version(minor))),
        _ => {}
    }
    let resources = served(kinds, version);
    let spec = Spec { resources: &resources, minor };
    match path {
        "/openapi/v2" if accept.contains(V2_PROTOBUF_ASKED) => {
            Some(Document { content_type: V2_PROTOBUF, body: spec.v2_protobuf() })
        }
        "/openapi/v2" => Some(json(&spec.v2_json())),
        _ if path.starts_with("/openapi/v3") => openapi_v3(&spec, path),
        _ => discovery::document(&resources, path).as_ref().map(json),
    }
}

/// `OpenAPI` version 3 came with Kubernetes 1.24.
fn openapi_v3(spec: &Spec<'_>, path: &str) -> Option<Document> {
    let rest = path.strip_prefix("/openapi/v3").filter(|_| spec.minor >= 24)?;
    match rest.trim_matches('/') {
        "" => Some(json(&spec.v3_index())),
        group_version => spec.v3(group_version).as_ref().map(json),
    }
}

fn json(document: &Value) -> Document {
    Document { content_type: "application/json", body: document.to_string().into_bytes() }
}

/// Everything a client can discover: the kinds, their status, and the questions of `reviews`.
fn served(kinds: &[Arc<Kind>], version: ServerVersion) -> Vec<Resource> {
    let mut served = Vec::new();
    for kind in kinds {
        let resource = Resource {
            group: kind.group.clone(),
            version: kind.version.clone(),
            name: kind.plural.clone(),
            singular: kind.singular.clone(),
            kind: kind.kind.clone(),
            kind_from: None,
            namespaced: kind.namespaced,
            verbs: verbs(&discovery::STORED),
            short_names: kind.short_names.clone(),
            categories: kind.categories.clone(),
        };
        if kind.status {
            served.push(Resource {
                name: format!("{}/status", kind.plural),
                singular: String::new(),
                verbs: verbs(&["get", "patch", "update"]),
                short_names: Vec::new(),
                categories: Vec::new(),
                ..resource.clone()
            });
        }
        served.push(resource);
    }
    served.extend(questions(version));
    served
}

fn questions(version: ServerVersion) -> Vec<Resource> {
    const AUTHENTICATION: &str = "authentication.k8s.io";
    const AUTHORIZATION: &str = "authorization.k8s.io";
    let question = |group: &str, name: &str, kind: &str| Resource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        name: name.to_owned(),
        singular: kind.to_lowercase(),
        kind: kind.to_owned(),
        kind_from: None,
        namespaced: false,
        verbs: verbs(&["create"]),
        short_names: Vec::new(),
        categories: Vec::new(),
    };
    let mut all = vec![
        question(AUTHORIZATION, "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        question(AUTHORIZATION, "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
        question(AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview"),
        Resource {
            singular: String::new(),
            kind_from: Some((AUTHENTICATION.to_owned(), "v1".to_owned())),
            namespaced: true,
            ..question("", "serviceaccounts/token", "TokenRequest")
        },
    ];
    if version.minor >= 28 {
        all.push(question(AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview"));
    }
    all
}

fn verbs(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::resources::Kinds;

    fn document(minor: u8, path: &str, accept: &str) -> Option<Document> {
        let version = ServerVersion::minor(minor);
        let kinds: Vec<_> = Kinds::of(version).iter().cloned().collect();
        at(&kinds, version, path, accept)
    }

    fn names(minor: u8, path: &str) -> Vec<String> {
        let document = document(minor, path, "").unwrap();
        let list: Value = serde_json::from_slice(&document.body).unwrap();
        let resources = list["resources"].as_array().unwrap().clone();
        resources.iter().map(|r| r["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn kinds_and_their_subresources_are_discovered_beside_questions() {
        let core = names(36, "/api/v1");
        for name in ["persistentvolumes", "persistentvolumes/status", "serviceaccounts/token"] {
            assert!(core.iter().any(|n| n == name), "{name}");
        }
        assert_eq!(
            names(36, "/apis/authorization.k8s.io/v1"),
            ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"]
        );
    }

    #[test]
    fn old_servers_offer_less() {
        let has =
            |minor, name: &str| names(minor, "/apis/storage.k8s.io/v1").iter().any(|n| n == name);
        assert!(!has(23, "csistoragecapacities") && has(24, "csistoragecapacities"));
        assert!(document(27, "/apis/authentication.k8s.io/v1", "").is_none());
        assert!(document(23, "/openapi/v3", "").is_none());
        assert!(document(24, "/openapi/v3", "").is_some());
    }

    #[test]
    fn the_client_chooses_the_form_of_openapi_v2() {
        let form = |accept| document(36, "/openapi/v2", accept).unwrap().content_type;
        assert_eq!(form(V2_PROTOBUF_ASKED), V2_PROTOBUF);
        assert_eq!(form("application/json"), "application/json");
    }

    #[test]
    fn health_and_version_stand_at_their_paths_and_nothing_elsewhere() {
        assert_eq!(document(36, "/readyz", "").unwrap().body, b"ok");
        assert!(document(36, "/version", "").is_some());
        for path in ["/metrics", "/", "/openapi/v3/apis/none/v1", "/apis/none"] {
            assert_eq!(document(36, path, ""), None, "{path}");
        }
    }
}
