//! The patches that clients of the storage APIs send: RFC 7386's, and Kubernetes' strategic merge, as far as it adds
//! and removes finalizers. A directive or a list that is not known here is refused rather than overlooked.

use serde_json::{Map, Value};

use super::{body::from_json, resources::Kind, status::Status, tree};

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// What begins the name of a member that says which strings leave a list.
const GONE: &str = "$deleteFromPrimitiveList/";

/// The member that says in which order finalizers are to stand.
const ORDER: &str = "$setElementOrder/finalizers";

/// A patch, read.
#[derive(Debug, Clone)]
pub(crate) struct Patch {
    strategic: bool,
    body: Value,
}

impl Patch {
    /// Reads a patch: 415 for an unknown type (custom kinds take no strategic ones), 400 for what can't be parsed.
    pub(crate) fn parse(kind: &Kind, content_type: &str, body: &[u8]) -> Result<Self, Status> {
        let taken: &[&str] = if kind.custom { &[MERGE] } else { &[MERGE, STRATEGIC] };
        if !taken.contains(&content_type) {
            return Err(Status::unsupported_media_type(taken));
        }
        let undecodable = |why| Status::bad_request(format!("error decoding patch: {why}"));
        let body = from_json(body).map_err(undecodable)?;
        Ok(Self { strategic: content_type == STRATEGIC, body })
    }

    /// The object with the patch applied; 400 for a patch that is malformed.
    pub(crate) fn apply(&self, mut object: Value) -> Result<Value, Status> {
        match &self.body {
            Value::Object(patch) if self.strategic => merge_object(&mut object, patch)?,
            _ if self.strategic => {
                let why = "error decoding patch: a strategic merge patch must be a JSON object";
                return Err(Status::bad_request(why));
            }
            body => json_patch::merge(&mut object, body),
        }
        Ok(object)
    }
}

fn merge_object(target: &mut Value, patch: &Map<String, Value>) -> Result<(), Status> {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return Ok(()) };
    for (name, value) in patch.iter().filter(|(name, _)| *name != ORDER) {
        let member = target.entry(name.strip_prefix(GONE).unwrap_or(name)).or_insert(Value::Null);
        match value {
            Value::Array(gone) if name.starts_with(GONE) => {
                let kept = tree::items(member, &[]).iter().filter(|one| !gone.contains(one));
                *member = kept.cloned().collect();
            }
            _ if name.starts_with('$') => {
                return Err(Status::bad_request(format!("this server does not know {name}")));
            }
            Value::Null => drop(target.remove(name)),
            Value::Object(patch) => merge_object(member, patch)?,
            Value::Array(new) if name == "finalizers" => {
                let mut all = tree::items(member, &[]).to_vec();
                all.extend(
                    new.iter().filter(|one| !tree::items(member, &[]).contains(one)).cloned(),
                );
                let order = patch.get(ORDER).map_or(&new[..], |order| tree::items(order, &[]));
                // Those that no order names come first.
                all.sort_by_key(|one| order.iter().position(|named| named == one));
                *member = Value::Array(all);
            }
            Value::Array(_) => {
                return Err(Status::bad_request(format!("this server does not merge {name}")));
            }
            plain => *member = plain.clone(),
        }
    }
    Ok(())
}
