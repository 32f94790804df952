//! `OpenAPI` documents, as small as kubectl accepts.
//!
//! Owns the version 2 document (protobuf and JSON) and the version 3 index and documents. They say
//! which kinds there are and which query parameters a PATCH of each takes, because kubectl looks
//! there before it asks for a dry run or for field validation. They hold no schemas: kubectl then
//! checks no fields itself and merges by the types built into it, and the server, which keeps
//! unknown fields, has nothing against them either. Pure functions of what is served.

use std::{collections::BTreeMap, fmt::Write as _};

use prost::Message as _;
use serde_json::{Map, Value, json};

use super::discovery::Resource;

/// Media type under which kubectl asks for the version 2 document.
pub(crate) const V2_PROTOBUF_ASKED: &str =
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// Media type under which it is answered: Go's parser takes no `@` in an answer's.
pub(crate) const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The query parameters of a PATCH that kubectl looks for.
const PATCH_PARAMETERS: [&str; 4] = ["dryRun", "fieldManager", "fieldValidation", "force"];

/// First Kubernetes minor version that knows `fieldValidation`.
const FIELD_VALIDATION_SINCE: u32 = 25;

/// Everything the documents are made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec<'a> {
    /// What is served.
    pub resources: &'a [Resource],
    /// The server's Kubernetes minor version.
    pub minor: u32,
}

impl Spec<'_> {
    fn parameters(&self) -> impl Iterator<Item = &'static str> {
        let minor = self.minor;
        PATCH_PARAMETERS
            .into_iter()
            .filter(move |name| *name != "fieldValidation" || minor >= FIELD_VALIDATION_SINCE)
    }

    /// Resources that can be patched, by the path of one object.
    fn patched(&self) -> impl Iterator<Item = (String, &Resource)> {
        self.resources
            .iter()
            .filter(|resource| resource.verbs.iter().any(|verb| verb == "patch"))
            .map(|resource| (object_path(resource), resource))
    }

    /// The version 2 document in JSON.
    pub(crate) fn v2_json(&self) -> Value {
        let parameters: Vec<Value> = self
            .parameters()
            .map(|name| json!({"name": name, "in": "query", "type": "string", "uniqueItems": true}))
            .collect();
        let paths: Map<String, Value> = self
            .patched()
            .map(|(path, resource)| {
                let responses = json!({"200": {"description": "OK"}});
                (path, patch_operation(resource, &json!(parameters), &responses))
            })
            .collect();
        json!({
            "swagger": "2.0",
            "info": {"title": "Kubernetes", "version": format!("v1.{}.0", self.minor)},
            "paths": paths, "definitions": {},
        })
    }

    /// The version 2 document in gnostic's protobuf.
    pub(crate) fn v2_protobuf(&self) -> Vec<u8> {
        let path = self.patched().map(|(name, resource)| {
            let patch = v2::Operation::new(self.parameters(), gvk_yaml(resource));
            v2::NamedPathItem { name, value: Some(v2::PathItem { patch: Some(patch) }) }
        });
        v2::Document {
            swagger: "2.0".to_owned(),
            info: Some(v2::Info {
                title: "Kubernetes".to_owned(),
                version: format!("v1.{}.0", self.minor),
            }),
            paths: Some(v2::Paths { path: path.collect() }),
        }
        .encode_to_vec()
    }

    /// The version 3 index: where the document of each group version is.
    pub(crate) fn v3_index(&self) -> Value {
        let paths: BTreeMap<String, Value> = self
            .resources
            .iter()
            .map(|resource| {
                let root = group_version_path(&resource.group, &resource.version);
                let url = format!("/openapi/v3/{root}?hash=1.{}", self.minor);
                (root, json!({"serverRelativeURL": url}))
            })
            .collect();
        json!({"paths": paths})
    }

    /// The version 3 document of a group version (`api/v1`, `apis/G/V`), where it is served.
    pub(crate) fn v3(&self, group_version: &str) -> Option<Value> {
        let of_it = |r: &Resource| group_version_path(&r.group, &r.version) == group_version;
        if !self.resources.iter().any(of_it) {
            return None;
        }
        let parameters: Vec<Value> = self
            .parameters()
            .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}}))
            .collect();
        let responses = json!({"200": {"description": "OK"}});
        let paths: Map<String, Value> = self
            .patched()
            .filter(|(_, resource)| of_it(resource))
            .map(|(path, resource)| {
                (path, patch_operation(resource, &json!(parameters), &responses))
            })
            .collect();
        Some(json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": format!("v1.{}.0", self.minor)},
            "paths": paths, "components": {"schemas": {}},
        }))
    }
}

fn group_version_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `/api/v1/namespaces/{namespace}/pods/{name}/status`
fn object_path(resource: &Resource) -> String {
    let mut path = format!("/{}", group_version_path(&resource.group, &resource.version));
    if resource.namespaced {
        path.push_str("/namespaces/{namespace}");
    }
    let (plural, subresource) =
        resource.name.split_once('/').map_or((resource.name.as_str(), None), |(a, b)| (a, Some(b)));
    // Writing to a String can't fail.
    let _ = write!(path, "/{plural}/{{name}}");
    if let Some(subresource) = subresource {
        let _ = write!(path, "/{subresource}");
    }
    path
}

fn patch_operation(resource: &Resource, parameters: &Value, responses: &Value) -> Value {
    json!({"patch": {
        "parameters": parameters, "responses": responses,
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {
            "group": resource.group, "version": resource.version, "kind": resource.kind,
        },
    }})
}

fn gvk_yaml(resource: &Resource) -> String {
    let Resource { group, version, kind, .. } = resource;
    format!("group: \"{group}\"\nkind: {kind}\nversion: {version}\n")
}

/// The few messages of gnostic's `OpenAPIv2.proto` that the document needs, with its field numbers.
mod v2 {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Document {
        #[prost(string, tag = "1")]
        pub(super) swagger: String,
        #[prost(message, optional, tag = "2")]
        pub(super) info: Option<Info>,
        #[prost(message, optional, tag = "8")]
        pub(super) paths: Option<Paths>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Info {
        #[prost(string, tag = "1")]
        pub(super) title: String,
        #[prost(string, tag = "2")]
        pub(super) version: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Paths {
        #[prost(message, repeated, tag = "2")]
        pub(super) path: Vec<NamedPathItem>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct NamedPathItem {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(message, optional, tag = "2")]
        pub(super) value: Option<PathItem>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct PathItem {
        #[prost(message, optional, tag = "8")]
        pub(super) patch: Option<Operation>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Operation {
        #[prost(message, repeated, tag = "8")]
        pub(super) parameters: Vec<ParametersItem>,
        #[prost(message, repeated, tag = "13")]
        pub(super) vendor_extension: Vec<NamedAny>,
    }

    /// `ParametersItem`, `Parameter` and `NonBodyParameter` are `oneof`s of which the document
    /// uses one branch each; on the wire a `oneof` is that branch's field.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ParametersItem {
        #[prost(message, optional, tag = "1")]
        pub(super) parameter: Option<Parameter>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Parameter {
        #[prost(message, optional, tag = "2")]
        pub(super) non_body_parameter: Option<NonBodyParameter>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct NonBodyParameter {
        #[prost(message, optional, tag = "3")]
        pub(super) query: Option<QueryParameter>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct QueryParameter {
        #[prost(string, tag = "2")]
        pub(super) location: String,
        #[prost(string, tag = "4")]
        pub(super) name: String,
        #[prost(string, tag = "6")]
        pub(super) kind: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct NamedAny {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(message, optional, tag = "2")]
        pub(super) value: Option<Any>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Any {
        #[prost(string, tag = "2")]
        pub(super) yaml: String,
    }

    impl Operation {
        pub(super) fn new(parameters: impl Iterator<Item = &'static str>, gvk: String) -> Self {
            let extension = NamedAny {
                name: "x-kubernetes-group-version-kind".to_owned(),
                value: Some(Any { yaml: gvk }),
            };
            Self {
                parameters: parameters.map(ParametersItem::query).collect(),
                vendor_extension: vec![extension],
            }
        }
    }

    impl ParametersItem {
        fn query(name: &str) -> Self {
            let query = QueryParameter {
                location: "query".to_owned(),
                name: name.to_owned(),
                kind: "string".to_owned(),
            };
            let non_body_parameter = Some(NonBodyParameter { query: Some(query) });
            Self { parameter: Some(Parameter { non_body_parameter }) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Vec<Resource> {
        let claim = Resource {
            group: String::new(),
            version: "v1".into(),
            name: "persistentvolumeclaims".into(),
            singular: "persistentvolumeclaim".into(),
            kind: "PersistentVolumeClaim".into(),
            kind_from: None,
            namespaced: true,
            verbs: vec!["patch".into()],
            short_names: vec![],
            categories: vec![],
        };
        let review = Resource {
            group: "authorization.k8s.io".into(),
            name: "selfsubjectaccessreviews".into(),
            kind: "SelfSubjectAccessReview".into(),
            namespaced: false,
            verbs: vec!["create".into()],
            ..claim.clone()
        };
        vec![claim, review]
    }

    const CLAIM: &str = "/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}";

    #[test]
    fn a_patchable_kind_names_its_query_parameters_in_every_form() {
        let claims = claims();
        let spec = Spec { resources: &claims, minor: 30 };
        let names = |doc: &Value| {
            let list = doc["paths"][CLAIM]["patch"]["parameters"].as_array().unwrap().clone();
            list.iter().map(|p| p["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(&spec.v2_json()), PATCH_PARAMETERS);
        assert_eq!(names(&spec.v3("api/v1").unwrap()), PATCH_PARAMETERS);
        let document = v2::Document::decode(spec.v2_protobuf().as_slice()).unwrap();
        let path = document.paths.unwrap().path.remove(0);
        assert_eq!(path.name, CLAIM);
        assert_eq!(path.value.unwrap().patch.unwrap().parameters.len(), 4);
    }

    #[test]
    fn servers_before_1_25_do_not_offer_field_validation() {
        let claims = claims();
        let old = Spec { resources: &claims, minor: 24 };
        assert!(!old.parameters().any(|name| name == "fieldValidation"));
        assert!(old.parameters().any(|name| name == "dryRun"));
    }

    #[test]
    fn the_index_leads_to_a_document_for_every_group_version() {
        let claims = claims();
        let spec = Spec { resources: &claims, minor: 36 };
        let index = spec.v3_index();
        let paths = index["paths"].as_object().unwrap();
        assert_eq!(paths.keys().collect::<Vec<_>>(), ["api/v1", "apis/authorization.k8s.io/v1"]);
        for (group_version, entry) in paths {
            assert!(spec.v3(group_version).is_some());
            let url = entry["serverRelativeURL"].as_str().unwrap();
            assert!(url.starts_with(&format!("/openapi/v3/{group_version}?hash=")));
        }
        assert!(spec.v3("apis/apps/v1").is_none());
    }

    #[test]
    fn what_cannot_be_patched_has_no_patch_operation() {
        let claims = claims();
        let spec = Spec { resources: &claims, minor: 36 };
        let document = spec.v3("apis/authorization.k8s.io/v1").unwrap();
        assert!(document["paths"].as_object().unwrap().is_empty());
    }
}
