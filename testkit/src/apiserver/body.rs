//! The bodies of requests, and what the real server can't even decode into an object of the kind: that is a 400,
//! where validation's refusals are 422. Only the members that clients get wrong are looked at.

use go_fmt::quantity::Quantity;
use serde_json::{Value, json};

use super::{quantity::quantities, resources::Kind, status::Status, tree};

/// Reads a JSON document.
pub(crate) fn from_json(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

/// Checks that a body is an object of the kind, and gives it with metadata.
pub(crate) fn decode(kind: &Kind, mut body: Value) -> Result<Value, Status> {
    if !body.is_object() {
        let message = format!(
            "the object provided is unrecognized (must be of type {}): it is no JSON object",
            kind.kind
        );
        return Err(Status::bad_request(message));
    }
    check_type(kind, &body)?;
    tree::set_default(&mut body, &["metadata"], json!({}));
    if !kind.custom {
        // In the typed objects of the real server, null is absent.
        tree::prune_nulls(&mut body);
    }
    check_metadata(kind, tree::at(&body, &["metadata"]))?;
    check_quantities(kind, &body)?;
    Ok(body)
}

fn check_type(kind: &Kind, body: &Value) -> Result<(), Status> {
    let (version, name) = (tree::text(body, &["apiVersion"]), tree::text(body, &["kind"]));
    let expected = kind.api_version();
    if !name.is_empty() && name != kind.kind {
        return Err(undecodable(
            kind,
            name,
            &format!("no kind {name:?} is registered at this path"),
        ));
    }
    if !version.is_empty() && version != expected {
        return Err(Status::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    Ok(())
}

fn undecodable(kind: &Kind, given: &str, why: &str) -> Status {
    let Kind { version, kind, .. } = kind;
    Status::bad_request(format!(
        "{given} in version {version:?} cannot be handled as a {kind}: {why}"
    ))
}

fn check_metadata(kind: &Kind, metadata: &Value) -> Result<(), Status> {
    let maps = ["labels", "annotations"]
        .into_iter()
        .flat_map(|map| tree::members(metadata, &[map]).map(move |(_, v)| (map, v)));
    let lists = tree::items(metadata, &["finalizers"]).iter().map(|value| ("finalizers", value));
    let texts = ["name", "namespace", "generateName", "resourceVersion", "uid"];
    let texts = texts.into_iter().filter_map(|text| Some((text, metadata.get(text)?)));
    let odd =
        maps.chain(lists).chain(texts).find(|(_, value)| !value.is_string() && !value.is_null());
    odd.map_or(Ok(()), |(member, value)| {
        let found = type_of(value);
        let why = format!("json: cannot unmarshal {found} into Go struct field ObjectMeta.metadata.{member} of type string");
        Err(undecodable(kind, &kind.kind, &why))
    })
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_quantities(kind: &Kind, body: &Value) -> Result<(), Status> {
    let mut texts = quantities(kind, body).filter_map(Value::as_str);
    let wrong = texts.find_map(|text| Quantity::parse(text.trim()).err());
    wrong.map_or(Ok(()), |why| Err(undecodable(kind, &kind.kind, &why.to_string())))
}
