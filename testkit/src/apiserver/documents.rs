//! What stands at paths that are no resources: health, version, discovery, and as much `OpenAPI` as
//! `kubectl apply` insists on.
//!
//! Discovery is unaggregated, which every client falls back to. The `OpenAPI` documents hold no schemas: kubectl
//! then checks no fields itself and merges by the types built into it.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use http::{Request, Response, header};
use serde_json::{Map, Value, json};

use super::{
    ApiServer, Body, request_info::RequestInfo, resources::Kind, respond, service::respond_in,
};

/// The answer to a GET of a document; nothing to other requests.
pub(super) fn answer(
    server: &ApiServer,
    info: &RequestInfo,
    request: &Request<Bytes>,
) -> Option<Response<Body>> {
    if info.is_resource || info.verb != "get" {
        return None;
    }
    let (kinds, minor) = (server.kinds(), server.version().minor);
    let accept = request.headers().get(header::ACCEPT).map_or(&b""[..], |it| it.as_bytes());
    let parts: Vec<&str> = info.path.trim_matches('/').split('/').collect();
    let document = match parts.as_slice() {
        ["healthz" | "livez" | "readyz"] => {
            return Some(respond_in("text/plain; charset=utf-8", 200, "ok".into()));
        }
        ["version"] => version(minor),
        ["api"] => {
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
        }
        ["apis"] => group_list(&kinds),
        ["api", version] => resource_list(&kinds, "", version)?,
        ["apis", group] => named_group(&kinds, group)?,
        ["apis", group, version] => resource_list(&kinds, group, version)?,
        ["openapi", "v2"] if String::from_utf8_lossy(accept).contains("protobuf") => {
            return Some(respond_in(V2_MEDIA_TYPE, 200, Bytes::from_static(V2)));
        }
        ["openapi", "v3"] if minor >= OPENAPI_V3_SINCE => index(&kinds),
        ["openapi", "v3", "api", version] => group_version(&kinds, "", version)?,
        ["openapi", "v3", "apis", group, version] => group_version(&kinds, group, version)?,
        _ => return None,
    };
    Some(respond(200, document.to_string()))
}
fn version(minor: u8) -> Value {
    json!({
        "major": "1", "minor": minor.to_string(), "gitVersion": format!("v1.{minor}.0"),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "", "platform": "linux/amd64",
    })
}

// === Discovery ===

/// The groups of the questions that `access::reviews` answers.
const QUESTIONS: [(&str, &str, &str); 3] = [
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview"),
];

/// The versions of every named group, the one that clients should prefer first.
fn groups(kinds: &[Arc<Kind>]) -> BTreeMap<&str, Vec<&str>> {
    let of_kinds = kinds.iter().map(|kind| (kind.group.as_str(), kind.version.as_str()));
    let mut groups = BTreeMap::<&str, Vec<&str>>::new();
    for (group, version) in of_kinds.chain(QUESTIONS.map(|(group, ..)| (group, "v1"))) {
        let versions = groups.entry(group).or_default();
        if !versions.contains(&version) {
            versions.push(version);
            versions.sort_by_key(|version| Reverse(maturity(version)));
        }
    }
    groups.remove("");
    groups
}

/// Orders versions as Kubernetes does: `v1` > `v1beta2` > `v1beta1` > `v1alpha1`.
fn maturity(version: &str) -> (u8, &str) {
    (u8::from(version.contains("beta")) + 2 * u8::from(version.len() < 4), version)
}

fn group(name: &str, versions: &[&str]) -> Map<String, Value> {
    let all =
        versions.iter().map(|it| json!({"groupVersion": format!("{name}/{it}"), "version": it}));
    let all: Vec<_> = all.collect();
    let fields =
        [("name", json!(name)), ("preferredVersion", json!(all.first())), ("versions", json!(all))];
    fields.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
}

fn group_list(kinds: &[Arc<Kind>]) -> Value {
    let groups: Vec<_> = groups(kinds).iter().map(|(name, all)| group(name, all)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn named_group(kinds: &[Arc<Kind>], name: &str) -> Option<Value> {
    let mut document = group(name, groups(kinds).get(name)?);
    document.insert("kind".to_owned(), "APIGroup".into());
    document.insert("apiVersion".to_owned(), "v1".into());
    Some(document.into())
}

fn resource_list(kinds: &[Arc<Kind>], group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for kind in kinds.iter().filter(|kind| kind.group == group && kind.version == version) {
        let verbs =
            ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        resources.push(json!({
            "name": kind.plural, "singularName": kind.singular, "kind": kind.kind,
            "namespaced": kind.namespaced, "verbs": verbs, "shortNames": kind.short_names,
        }));
        if kind.status {
            resources.push(json!({
                "name": format!("{}/status", kind.plural), "singularName": "", "kind": kind.kind,
                "namespaced": kind.namespaced, "verbs": ["get", "patch", "update"],
            }));
        }
    }
    for (_, name, kind) in QUESTIONS.iter().filter(|it| it.0 == group && version == "v1") {
        resources.push(json!({
            "name": name, "singularName": "", "kind": kind, "namespaced": false, "verbs": ["create"],
        }));
    }
    let group_version =
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    (!resources.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
            "resources": resources,
        })
    })
}

// === OpenAPI ===

/// Since which release there is version 3.
const OPENAPI_V3_SINCE: u8 = 24;

/// Go's parser takes no `@` in an answer's media type, although that is what kubectl asks for.
const V2_MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Version 2 in gnostic's protobuf: `swagger: "2.0"`, and no definition.
const V2: &[u8] = b"\x0a\x032.0";

fn index(kinds: &[Arc<Kind>]) -> Value {
    let root = |kind: &Kind| match kind.group.as_str() {
        "" => format!("api/{}", kind.version),
        group => format!("apis/{group}/{}", kind.version),
    };
    let paths: Map<_, _> = kinds
        .iter()
        .map(|kind| root(kind))
        .map(|root| (root.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{root}")})))
        .collect();
    json!({"paths": paths})
}

/// Which kinds there are, and that a PATCH of them takes `fieldValidation`: kubectl then leaves that to the
/// server, which keeps unknown fields.
fn group_version(kinds: &[Arc<Kind>], group: &str, version: &str) -> Option<Value> {
    let kinds = kinds.iter().filter(|kind| kind.group == group && kind.version == version);
    let paths: Map<_, _> = kinds
        .map(|kind| {
            let patch = json!({"patch": {
                "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind.kind},
            }});
            (format!("/{}/{{name}}", kind.plural), patch)
        })
        .collect();
    (!paths.is_empty()).then(|| {
        json!({
            "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": version},
            "paths": paths, "components": {"schemas": {}},
        })
    })
}
