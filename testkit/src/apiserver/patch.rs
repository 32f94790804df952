//! The patches that clients of the storage APIs send: RFC 7386's, and Kubernetes' strategic merge of lists that
//! are sets or have keys. A directive that is not known here is refused rather than overlooked.

use serde_json::{Map, Value};

use super::{body::from_json, resources::Kind, status::Status, tree};

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

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

/// How a list is merged: as a set of strings, by a member of its elements, or (none) not at all.
enum ListRule {
    Set,
    Keyed(&'static str),
}

fn rule(field: &str) -> Option<ListRule> {
    Some(match field {
        "finalizers" => ListRule::Set,
        "ownerReferences" => ListRule::Keyed("uid"),
        "conditions" => ListRule::Keyed("type"),
        "containers" | "initContainers" | "volumes" | "env" | "imagePullSecrets" => {
            ListRule::Keyed("name")
        }
        "ports" => ListRule::Keyed("containerPort"),
        "volumeMounts" => ListRule::Keyed("mountPath"),
        "topologySpreadConstraints" => ListRule::Keyed("topologyKey"),
        _ => return None,
    })
}

fn merge_object(target: &mut Value, patch: &Map<String, Value>) -> Result<(), Status> {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return Ok(()) };
    let before = target.clone();
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = tree::items(value, &[]);
            if let Some(Value::Array(list)) = target.get_mut(list) {
                list.retain(|value| !gone.contains(value));
            }
        } else if name == "$retainKeys" {
            let keys = tree::items(value, &[]);
            target.retain(|name, _| keys.iter().any(|key| key.as_str() == Some(name)));
        } else if name.starts_with('$') && !name.starts_with("$setElementOrder/") {
            return Err(Status::bad_request(format!("this server does not know {name}")));
        }
    }
    for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        let member = target.entry(name).or_insert(Value::Null);
        match value {
            Value::Null => {
                target.remove(name);
            }
            Value::Object(patch) => merge_object(member, patch)?,
            Value::Array(patch) => {
                let list = tree::items(&*member, &[]).to_vec();
                *member = Value::Array(merge_list(rule(name).as_ref(), list, patch)?);
            }
            plain => *member = plain.clone(),
        }
    }
    for (name, order) in patch {
        let Some(list) = name.strip_prefix("$setElementOrder/") else { continue };
        if let Some(Value::Array(now)) = target.get_mut(list) {
            let before = before.get(list).map(|list| tree::items(list, &[]));
            arrange(now, tree::items(order, &[]), before.unwrap_or_default(), rule(list).as_ref());
        }
    }
    Ok(())
}

fn merge_list(
    rule: Option<&ListRule>,
    mut list: Vec<Value>,
    patch: &[Value],
) -> Result<Vec<Value>, Status> {
    let before = list.clone();
    match rule {
        None => return Ok(patch.to_vec()),
        Some(ListRule::Set) => {
            list.extend(patch.iter().filter(|value| !before.contains(value)).cloned());
        }
        Some(ListRule::Keyed(key)) => {
            for element in patch {
                let id = element.get(key).ok_or_else(|| {
                    let why = format!("{element} does not contain declared merge key: {key}");
                    Status::bad_request(format!("map: {why}"))
                })?;
                if element.get("$patch").is_some_and(|directive| directive == "delete") {
                    list.retain(|one| one.get(key) != Some(id));
                    continue;
                }
                let known = list.iter().position(|one| one.get(key) == Some(id));
                let mut merged = known.map_or(Value::Null, |place| list.swap_remove(place));
                if let Some(element) = element.as_object() {
                    merge_object(&mut merged, element)?;
                }
                list.push(merged);
            }
        }
    }
    arrange(&mut list, patch, &before, rule);
    Ok(list)
}

/// Puts the elements that `order` names into that order. The others go between them as they stood in the list
/// `before`; what was not in that list comes ahead of them.
fn arrange(list: &mut Vec<Value>, order: &[Value], before: &[Value], rule: Option<&ListRule>) {
    let id = |element: &Value| match rule {
        Some(ListRule::Keyed(key)) => element.get(key).cloned(),
        _ => Some(element.clone()),
    };
    let place =
        |among: &[Value], element: &Value| among.iter().position(|one| id(one) == id(element));
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        list.drain(..).partition(|element| place(order, element).is_some());
    named.sort_by_key(|element| place(order, element));
    others.sort_by_key(|element| place(before, element));
    let mut others = others.into_iter().peekable();
    for element in named {
        let was = place(before, &element);
        let earlier = |other: &Value| was.is_some() && place(before, other) < was;
        while let Some(other) = others.next_if(earlier) {
            list.push(other);
        }
        list.push(element);
    }
    list.extend(others);
}
