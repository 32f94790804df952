//! Strategic merge: Kubernetes' merge that knows which lists are sets.
//!
//! Owns the merge keys of the lists that the served kinds have and clients patch, and the
//! directives `$patch`, `$retainKeys`, `$deleteFromPrimitiveList/…` and `$setElementOrder/…`.
//! All other lists are replaced as a whole, as in a plain merge.

use serde_json::{Map, Value};

use crate::apiserver::{resources::Kind, status::Status, tree};

/// How a list is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListRule {
    /// Replaced as a whole.
    Atomic,
    /// A set of strings.
    Set,
    /// Objects identified by a member.
    Keyed(&'static str),
}

impl ListRule {
    /// The member that identifies elements; `None` if their values do.
    fn key(self) -> Option<&'static str> {
        match self {
            Self::Keyed(key) => Some(key),
            Self::Atomic | Self::Set => None,
        }
    }
}

fn rule(kind: &Kind, field: &str) -> ListRule {
    if kind.custom {
        // Schemaless: only the metadata's lists are known (server-side apply gets here).
        return match field {
            "finalizers" => ListRule::Set,
            "ownerReferences" => ListRule::Keyed("uid"),
            _ => ListRule::Atomic,
        };
    }
    match field {
        "finalizers" | "podCIDRs" => ListRule::Set,
        "ownerReferences" => ListRule::Keyed("uid"),
        "conditions" | "addresses" => ListRule::Keyed("type"),
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "secrets"
        | "drivers" => ListRule::Keyed("name"),
        "ports" => ListRule::Keyed("containerPort"),
        "volumeMounts" => ListRule::Keyed("mountPath"),
        "volumeDevices" => ListRule::Keyed("devicePath"),
        "taints" => ListRule::Keyed("key"),
        "topologySpreadConstraints" => ListRule::Keyed("topologyKey"),
        "hostAliases" => ListRule::Keyed("ip"),
        _ => ListRule::Atomic,
    }
}

/// Merges `patch` into `object`, as a strategic merge patch.
///
/// # Errors
/// 400 for a patch that is no object, or an element without its merge key.
pub(super) fn merge(kind: &Kind, object: &mut Value, patch: &Value) -> Result<(), Status> {
    merge_value(Merge { kind, new: New::First }, object, patch)
}

/// Merges `patch` into `object`, as a server-side apply.
///
/// # Errors
/// As for [`merge`].
pub(super) fn apply(kind: &Kind, object: &mut Value, patch: &Value) -> Result<(), Status> {
    merge_value(Merge { kind, new: New::Last }, object, patch)
}

/// How one patch is merged.
#[derive(Clone, Copy)]
struct Merge<'a> {
    kind: &'a Kind,
    new: New,
}

/// Where elements that are new to a list go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum New {
    First,
    Last,
}

fn merge_value(how: Merge<'_>, object: &mut Value, patch: &Value) -> Result<(), Status> {
    let Value::Object(patch) = patch else {
        return Err(Status::bad_request(
            "error decoding patch: a strategic merge patch must be a JSON object",
        ));
    };
    merge_object(how, object, patch)
}

fn merge_object(
    how: Merge<'_>,
    target: &mut Value,
    patch: &Map<String, Value>,
) -> Result<(), Status> {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return Ok(()) };
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            *target = patch
                .iter()
                .filter(|(name, _)| *name != "$patch")
                .map(|(n, v)| (n.clone(), v.clone()))
                .collect();
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        _ => {}
    }
    retain_keys(target, patch);
    let orders = orders(target, patch);
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            delete_from_set(target, list, value);
        } else if !name.starts_with('$') {
            merge_member(how, target, name, value)?;
        }
    }
    for (name, order, before) in orders {
        if let Some(Value::Array(list)) = target.get_mut(name) {
            arrange(list, order, &before, rule(how.kind, name).key());
        }
    }
    Ok(())
}

/// What `$setElementOrder` asks for: of which list, in which order, and the list as it was.
fn orders<'p>(
    target: &Map<String, Value>,
    patch: &'p Map<String, Value>,
) -> Vec<(&'p str, &'p [Value], Vec<Value>)> {
    let order = |(name, order): (&'p String, &'p Value)| {
        let list = name.strip_prefix("$setElementOrder/")?;
        let before = target.get(list).map(|list| tree::items(list, &[]).to_vec());
        Some((list, tree::items(order, &[]), before.unwrap_or_default()))
    };
    patch.iter().filter_map(order).collect()
}

fn merge_member(
    how: Merge<'_>,
    target: &mut Map<String, Value>,
    name: &str,
    patch: &Value,
) -> Result<(), Status> {
    match patch {
        Value::Null => {
            target.remove(name);
        }
        Value::Object(patch) => {
            let member = target.entry(name).or_insert(Value::Null);
            merge_object(how, member, patch)?;
        }
        Value::Array(patch) => {
            let member = target.entry(name).or_insert(Value::Null);
            merge_list(how, name, member, patch)?;
        }
        plain => {
            target.insert(name.to_owned(), plain.clone());
        }
    }
    Ok(())
}

fn merge_list(
    how: Merge<'_>,
    name: &str,
    target: &mut Value,
    patch: &[Value],
) -> Result<(), Status> {
    let rule = rule(how.kind, name);
    let Value::Array(list) = target else {
        *target = Value::Array(Vec::new());
        return merge_list(how, name, target, patch);
    };
    let before = list.clone();
    match rule {
        ListRule::Atomic => *list = patch.to_vec(),
        ListRule::Set => {
            let new = patch.iter().filter(|value| !before.contains(value));
            list.extend(new.cloned());
        }
        ListRule::Keyed(key) => {
            merge_keyed(how, key, list, patch)?;
        }
    }
    if how.new == New::First && rule != ListRule::Atomic {
        arrange(list, patch, &before, rule.key());
    }
    Ok(())
}

fn merge_keyed(
    how: Merge<'_>,
    key: &str,
    list: &mut Vec<Value>,
    patch: &[Value],
) -> Result<(), Status> {
    if patch.iter().any(|element| is_directive(element, "replace")) {
        *list = patch.iter().filter(|element| !is_directive(element, "replace")).cloned().collect();
        return Ok(());
    }
    for element in patch {
        let id = element.get(key).ok_or_else(|| missing_key(key, element))?;
        if is_directive(element, "delete") {
            list.retain(|one| one.get(key) != Some(id));
        } else if let Some(found) = list.iter_mut().find(|one| one.get(key) == Some(id)) {
            merge_value(how, found, element)?;
        } else {
            let mut new = Value::Null;
            merge_value(how, &mut new, element)?;
            list.push(new);
        }
    }
    Ok(())
}

fn missing_key(key: &str, element: &Value) -> Status {
    Status::bad_request(format!("map: {element} does not contain declared merge key: {key}"))
}

fn is_directive(element: &Value, directive: &str) -> bool {
    tree::text(element, &["$patch"]) == directive
}

fn retain_keys(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    if let Some(Value::Array(keys)) = patch.get("$retainKeys") {
        target.retain(|name, _| keys.iter().any(|key| key.as_str() == Some(name)));
    }
}

fn delete_from_set(target: &mut Map<String, Value>, list: &str, values: &Value) {
    let values = tree::items(values, &[]);
    if let Some(Value::Array(list)) = target.get_mut(list) {
        list.retain(|value| !values.contains(value));
    }
}

/// Puts the elements that `order` names into that order. The others go between them as they stood
/// in the list `before`; what was not in that list comes ahead of them.
fn arrange(list: &mut Vec<Value>, order: &[Value], before: &[Value], key: Option<&str>) {
    let id = |element: &Value| match key {
        Some(key) => element.get(key).cloned(),
        None => Some(element.clone()),
    };
    let place = |among: &[Value], element: &Value| {
        let wanted = id(element);
        among.iter().position(|one| id(one) == wanted)
    };
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        list.drain(..).partition(|element| place(order, element).is_some());
    named.sort_by_key(|element| place(order, element));
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::apiserver::resources::{Kinds, ServerVersion};

    fn merged(kind: &str, object: &Value, patch: &Value) -> Value {
        let kinds = Kinds::of(ServerVersion::default());
        let mut object = object.clone();
        merge(kinds.by_name(kind).unwrap(), &mut object, patch).unwrap();
        object
    }

    #[test]
    fn finalizers_are_a_set() {
        let object = json!({"metadata": {"finalizers": ["a", "b"]}});
        let finalizers = |patch: Value| {
            merged("PersistentVolume", &object, &json!({"metadata": patch}))["metadata"]["finalizers"].clone()
        };
        assert_eq!(finalizers(json!({"finalizers": ["c", "a"]})), json!(["c", "a", "b"]));
        assert_eq!(finalizers(json!({"$deleteFromPrimitiveList/finalizers": ["a"]})), json!(["b"]));
        for (patch, order) in [
            (json!({"finalizers": ["c"]}), json!(["c", "a", "b"])),
            (json!({"$setElementOrder/finalizers": ["b", "a"]}), json!(["b", "a"])),
            (
                json!({"$setElementOrder/finalizers": ["a", "b", "c"], "finalizers": ["c"]}),
                json!(["a", "b", "c"]),
            ),
            // Whoever did not know of `a`.
            (
                json!({"$setElementOrder/finalizers": ["b", "c"], "finalizers": ["c"]}),
                json!(["a", "b", "c"]),
            ),
            (
                json!({"$setElementOrder/finalizers": ["c", "b"], "finalizers": ["c"]}),
                json!(["c", "a", "b"]),
            ),
        ] {
            assert_eq!(finalizers(patch.clone()), order, "{patch}");
        }
        assert_eq!(finalizers(json!({"finalizers": null})), Value::Null);
    }

    #[test]
    fn keyed_lists_are_merged_by_their_key() {
        let object = json!({"status": {"conditions": [{"type": "A", "status": "False"}, {"type": "B", "status": "True"}]}});
        let conditions = |patch: Value| {
            merged("PersistentVolumeClaim", &object, &json!({"status": {"conditions": patch}}))["status"]["conditions"].clone()
        };
        assert_eq!(
            conditions(json!([{"type": "A", "status": "True"}, {"type": "C"}])),
            json!([{"type": "A", "status": "True"}, {"type": "C"}, {"type": "B", "status": "True"}])
        );
        assert_eq!(
            conditions(json!([{"type": "B", "$patch": "delete"}])),
            json!([{"type": "A", "status": "False"}])
        );
        assert_eq!(
            conditions(json!([{"$patch": "replace"}, {"type": "Z"}])),
            json!([{"type": "Z"}])
        );
    }

    #[test]
    fn other_lists_and_plain_members_are_replaced() {
        let object = json!({"spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "v"}, "metadata": {"labels": {"a": "1", "b": "2"}}});
        let patch = json!({"spec": {"accessModes": ["ReadOnlyMany"], "volumeName": null}, "metadata": {"labels": {"a": null, "c": "3"}}});
        assert_eq!(
            merged("PersistentVolumeClaim", &object, &patch),
            json!({"spec": {"accessModes": ["ReadOnlyMany"]}, "metadata": {"labels": {"b": "2", "c": "3"}}})
        );
    }

    #[test]
    fn directives_replace_and_retain() {
        let object = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
        let retained = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
        assert_eq!(
            merged("Deployment", &object, &retained),
            json!({"spec": {"strategy": {"type": "Recreate"}}})
        );
        let replaced = json!({"spec": {"$patch": "replace", "replicas": 1}});
        assert_eq!(merged("Deployment", &object, &replaced), json!({"spec": {"replicas": 1}}));
    }

    #[test]
    fn an_element_without_its_key_is_refused() {
        let kinds = Kinds::of(ServerVersion::default());
        let mut object = json!({});
        let refused = merge(
            kinds.by_name("Pod").unwrap(),
            &mut object,
            &json!({"spec": {"containers": [{"image": "x"}]}}),
        );
        assert_eq!(refused.unwrap_err().code, 400);
    }

    /// Objects of objects, strings and nulls: nothing a strategic merge treats in its own way.
    fn plain_object() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), "[x-z]".prop_map(Value::from)];
        let nested = leaf.prop_recursive(3, 16, 3, |inner| {
            prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(|map| json!(map))
        });
        prop::collection::btree_map("[a-c]", nested, 0..3).prop_map(|map| json!(map))
    }

    proptest! {
        #[test]
        fn without_lists_it_is_the_plain_merge_and_doing_it_twice_changes_nothing(object in plain_object(), patch in plain_object()) {
            let strategic = merged("Secret", &object, &patch);
            let mut plain = object;
            json_patch::merge(&mut plain, &patch);
            prop_assert_eq!(&strategic, &plain);
            prop_assert_eq!(&merged("Secret", &strategic, &patch), &strategic);
        }
    }
}
