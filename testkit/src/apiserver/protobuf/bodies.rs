//! Request bodies in Kubernetes' protobuf, turned into JSON.
//!
//! Owns the messages of the few kinds that kubectl creates through its typed clients, which send
//! protobuf from release 1.32 on. Promises to give nothing for other kinds, which are then refused
//! with 415 as unknown media types are. Field numbers are those of the `generated.proto` files of
//! k8s.io/api.

use std::{collections::BTreeMap, fmt::Debug};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use prost::Message;
use serde::{Serialize, Serializer, ser::SerializeMap as _};
use serde_json::Value;

use super::{MAGIC, TypeMeta, Unknown};
use crate::apiserver::tree;

/// The object in `body` as JSON; `None` for what is malformed or of a kind not known here.
pub(crate) fn to_json(body: &[u8]) -> Option<Value> {
    let envelope = Unknown::decode(body.strip_prefix(MAGIC)?).ok()?;
    let TypeMeta { api_version, kind } = envelope.type_meta?;
    let raw = envelope.raw.as_slice();
    let mut object = match kind.as_str() {
        "SelfSubjectAccessReview" => json::<Outer<AccessReviewSpec>>(raw),
        "SelfSubjectRulesReview" => json::<Outer<RulesReviewSpec>>(raw),
        "SelfSubjectReview" | "Namespace" | "ServiceAccount" => json::<MetadataOnly>(raw),
        "TokenRequest" => json::<Outer<TokenRequestSpec>>(raw),
        "Secret" => json::<Secret>(raw),
        "ConfigMap" => json::<ConfigMap>(raw),
        "Role" | "ClusterRole" => json::<Role>(raw),
        "RoleBinding" | "ClusterRoleBinding" => json::<Binding>(raw),
        _ => None,
    }?;
    tree::set(&mut object, &["apiVersion"], api_version.into());
    tree::set(&mut object, &["kind"], kind.into());
    Some(object)
}

fn json<M: Message + Default + Serialize>(raw: &[u8]) -> Option<Value> {
    serde_json::to_value(M::decode(raw).ok()?).ok()
}

// === Objects ===

/// An object of which nothing but the metadata is read.
#[derive(Clone, PartialEq, Message, Serialize)]
struct MetadataOnly {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<ObjectMeta>,
}

/// An object with a `spec`.
#[derive(Clone, PartialEq, Message, Serialize)]
struct Outer<S: Message + Default + Debug> {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<S>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMeta {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    generate_name: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[prost(btree_map = "string, string", tag = "11")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    #[prost(string, repeated, tag = "14")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    finalizers: Vec<String>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct AccessReviewSpec {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_attributes: Option<ResourceAttributes>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    non_resource_attributes: Option<NonResourceAttributes>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
struct ResourceAttributes {
    #[prost(string, tag = "1")]
    namespace: String,
    #[prost(string, tag = "2")]
    verb: String,
    #[prost(string, tag = "3")]
    group: String,
    #[prost(string, tag = "4")]
    version: String,
    #[prost(string, tag = "5")]
    resource: String,
    #[prost(string, tag = "6")]
    subresource: String,
    #[prost(string, tag = "7")]
    name: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
struct NonResourceAttributes {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(string, tag = "2")]
    verb: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
struct RulesReviewSpec {
    #[prost(string, tag = "1")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenRequestSpec {
    #[prost(string, repeated, tag = "1")]
    audiences: Vec<String>,
    #[prost(int64, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    expiration_seconds: Option<i64>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct Secret {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(btree_map = "string, bytes", tag = "2")]
    #[serde(serialize_with = "base64", skip_serializing_if = "BTreeMap::is_empty")]
    data: BTreeMap<String, Vec<u8>>,
    #[prost(string, tag = "3")]
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    kind: String,
    #[prost(btree_map = "string, string", tag = "4")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    string_data: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConfigMap {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(btree_map = "string, string", tag = "2")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    data: BTreeMap<String, String>,
    #[prost(btree_map = "string, bytes", tag = "3")]
    #[serde(serialize_with = "base64", skip_serializing_if = "BTreeMap::is_empty")]
    binary_data: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
struct Role {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, repeated, tag = "2")]
    rules: Vec<PolicyRule>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyRule {
    #[prost(string, repeated, tag = "1")]
    verbs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    api_groups: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    resources: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resource_names: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    paths: Vec<String>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct Binding {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, repeated, tag = "2")]
    subjects: Vec<Subject>,
    #[prost(message, optional, tag = "3")]
    role_ref: Option<RoleRef>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct Subject {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    api_group: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct RoleRef {
    #[prost(string, tag = "1")]
    api_group: String,
    #[prost(string, tag = "2")]
    kind: String,
    #[prost(string, tag = "3")]
    name: String,
}

/// Bytes stand in JSON as base64.
fn base64<S: Serializer>(
    map: &BTreeMap<String, Vec<u8>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut out = serializer.serialize_map(Some(map.len()))?;
    for (key, value) in map {
        out.serialize_entry(key, &BASE64_STANDARD.encode(value))?;
    }
    out.end()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body(api_version: &str, kind: &str, object: &impl Message) -> Vec<u8> {
        let type_meta =
            Some(TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() });
        let envelope = Unknown { type_meta, raw: object.encode_to_vec(), ..Unknown::default() };
        [MAGIC, &envelope.encode_to_vec()].concat()
    }

    #[test]
    fn a_review_reads_as_its_json() {
        let attributes = ResourceAttributes { verb: "get".to_owned(), ..Default::default() };
        let spec = AccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
        let review = Outer { metadata: None, spec: Some(spec) };
        let body = body("authorization.k8s.io/v1", "SelfSubjectAccessReview", &review);
        let json = to_json(&body).unwrap();
        assert_eq!(json["apiVersion"], "authorization.k8s.io/v1");
        assert_eq!(json["spec"]["resourceAttributes"]["verb"], "get");
        assert!(json["spec"].get("nonResourceAttributes").is_none());
    }

    #[test]
    fn a_secrets_bytes_become_base64() {
        let secret = Secret {
            metadata: Some(ObjectMeta { name: "s".to_owned(), ..Default::default() }),
            data: BTreeMap::from([("k".to_owned(), b"v".to_vec())]),
            kind: "Opaque".to_owned(),
            ..Default::default()
        };
        assert_eq!(
            to_json(&body("v1", "Secret", &secret)).unwrap(),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
                   "type": "Opaque", "data": {"k": "dg=="}})
        );
    }

    #[test]
    fn other_kinds_and_malformed_bodies_give_nothing() {
        assert_eq!(to_json(&body("v1", "Pod", &MetadataOnly::default())), None);
        assert_eq!(to_json(b"{}"), None);
        assert_eq!(to_json(b"k8s\0\xff\xff"), None);
    }
}
