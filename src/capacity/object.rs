//! The content of a CSIStorageCapacity object: what is kept of it, what it should hold, and the
//! change between the two.
//!
//! Pure. Content is compared by meaning (sizes by value, selectors by what they select). A change
//! touches only sizes and owner references and keeps other owners. The API server accepts only one
//! controller reference, so ours replaces another's.

use go_fmt::quantity::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde_json::{Value, json};

use super::{labels::ObjectLabels, segment::Pair};
use crate::{
    csi::proto::GetCapacityResponse,
    kube::objects::{LabelSelector, StorageCapacity},
};

/// What is kept of an object of ours.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Object {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    /// Orders objects of the same pair: the oldest is kept.
    pub(super) created: Option<Time>,
    /// The pair it is for; `None` if it is for no segment that could be ours.
    pub(super) pair: Option<Pair>,
    pub(super) sizes: Sizes,
    pub(super) owners: Vec<OwnerReference>,
    /// It has a deletion timestamp and waits for its finalizers.
    pub(super) terminating: bool,
}

/// The reported capacity, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sizes {
    /// In total; `None` if an object has no such field.
    pub(super) available: Option<i64>,
    /// For one volume, if limited.
    pub(super) largest: Option<i64>,
}

impl From<&GetCapacityResponse> for Sizes {
    fn from(answer: &GetCapacityResponse) -> Self {
        Self { available: Some(answer.available_capacity), largest: answer.maximum_volume_size }
    }
}

/// Reduces it to what is kept.
impl From<StorageCapacity> for Object {
    fn from(object: StorageCapacity) -> Self {
        let bytes = |text: Option<String>| Quantity::parse(&text?).ok().map(|size| size.value());
        let metadata = object.metadata;
        Self {
            name: metadata.name.unwrap_or_default().into(),
            uid: metadata.uid.unwrap_or_default().to_string(),
            resource_version: metadata.resource_version.unwrap_or_default().into(),
            created: metadata.creation_timestamp,
            pair: pair(&object.storage_class_name, object.node_topology),
            sizes: Sizes {
                available: bytes(object.capacity),
                largest: bytes(object.maximum_volume_size),
            },
            owners: metadata.owner_references,
            terminating: metadata.deletion_timestamp.is_some(),
        }
    }
}

/// The pair an object is for. No selector selects no node, an empty selector all.
fn pair(class: &str, nodes: Option<LabelSelector>) -> Option<Pair> {
    let nodes = nodes.filter(|nodes| nodes.match_expressions.is_empty())?;
    Some(Pair { class: class.into(), segment: nodes.match_labels.into_iter().collect() })
}

/// What the server completes to a name, as in external-provisioner.
const NAME_PREFIX: &str = "csisc-";

/// The body of a new object.
pub(super) fn body(
    labels: &ObjectLabels,
    pair: &Pair,
    sizes: Sizes,
    owner: Option<&OwnerReference>,
) -> Value {
    let mut metadata = json!({"generateName": NAME_PREFIX, "labels": labels.to_json()});
    if let (Some(owner), Some(fields)) = (owner, metadata.as_object_mut()) {
        fields.insert("ownerReferences".to_owned(), json!([owner]));
    }
    let selector = match pair.segment.labels() {
        labels if labels.is_empty() => json!({}),
        labels => json!({"matchLabels": labels}),
    };
    let mut object = json!({
        "kind": "CSIStorageCapacity",
        "metadata": metadata,
        "storageClassName": &*pair.class,
        "nodeTopology": selector,
    });
    write(&mut object, sizes);
    object
}

impl Object {
    /// The merge patch that gives this version of the object the sizes and the owner; `None` if it has them.
    pub(super) fn correction(&self, sizes: Sizes, owner: Option<&OwnerReference>) -> Option<Value> {
        let is_ours = |ours: &OwnerReference| {
            self.owners.iter().any(|one| controls(one) && one.uid == ours.uid)
        };
        let owners = match owner.filter(|ours| !is_ours(ours)) {
            Some(ours) => with_owner(&self.owners, ours),
            None if self.sizes == sizes => return None,
            None => self.owners.clone(),
        };
        let metadata = json!({"uid": self.uid, "resourceVersion": self.resource_version, "ownerReferences": owners});
        let mut patch = json!({"metadata": metadata});
        write(&mut patch, sizes);
        Some(patch)
    }
}

fn controls(owner: &OwnerReference) -> bool {
    owner.controller == Some(true)
}

/// The owner references with ours as the controller.
fn with_owner(owners: &[OwnerReference], ours: &OwnerReference) -> Vec<OwnerReference> {
    let others = owners.iter().filter(|owner| !controls(owner) && owner.uid != ours.uid);
    others.chain([ours]).cloned().collect()
}

/// Writes the sizes. An absent size is written as null, which removes the field.
fn write(object: &mut Value, sizes: Sizes) {
    let text = |bytes: Option<i64>| bytes.map(|bytes| Quantity::from_bytes(bytes).to_string());
    if let Some(fields) = object.as_object_mut() {
        fields.insert("capacity".to_owned(), json!(text(sizes.available)));
        fields.insert("maximumVolumeSize".to_owned(), json!(text(sizes.largest)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(object: Value) -> StorageCapacity {
        serde_json::from_value(object).unwrap()
    }

    fn owner(uid: &str, controller: bool) -> OwnerReference {
        let controller = controller.then_some(true);
        OwnerReference { uid: uid.to_owned(), controller, ..OwnerReference::default() }
    }

    fn sizes(available: i64, largest: Option<i64>) -> Sizes {
        Sizes { available: Some(available), largest }
    }

    fn object(sizes: Sizes, owners: &[OwnerReference]) -> Object {
        let metadata = json!({"name": "n", "uid": "u", "resourceVersion": "7"});
        let object = view(json!({"metadata": metadata, "storageClassName": "fast"}));
        Object { sizes, owners: owners.to_vec(), ..object.into() }
    }

    #[test]
    fn the_pair_of_an_object_follows_from_its_selector() {
        let about = |nodes: Value| {
            Object::from(view(json!({"storageClassName": "fast", "nodeTopology": nodes}))).pair
        };
        let pair = |labels: &[(&str, &str)]| {
            Some(Pair { class: "fast".into(), segment: labels.iter().copied().collect() })
        };
        for (nodes, expected) in [
            (json!({"matchLabels": {"b": "2", "a": "1"}}), pair(&[("a", "1"), ("b", "2")])),
            (json!({}), pair(&[])),
            (json!({"matchLabels": {}}), pair(&[])),
            (json!({"matchLabels": {}, "matchExpressions": []}), pair(&[])),
            (json!(null), None),
            (json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}), None),
        ] {
            assert_eq!(about(nodes.clone()), expected, "{nodes}");
        }
    }

    #[test]
    fn sizes_are_read_by_value() {
        let read = |object: Value| Object::from(view(object)).sizes;
        assert_eq!(read(json!({"capacity": "1024Mi"})), sizes(1 << 30, None));
        assert_eq!(
            read(json!({"capacity": "1G", "maximumVolumeSize": "1500m"})),
            sizes(1_000_000_000, Some(2))
        );
        assert_eq!(read(json!({"capacity": "much"})), Sizes::default());
    }

    #[test]
    fn a_correct_object_is_left_alone() {
        let (ours, other) = (owner("ours", true), owner("other", true));
        let (right, wrong) = (sizes(1, None), sizes(2, None));
        for (object, wanted, corrected) in [
            (object(right, &[]), None, false),
            (object(right, std::slice::from_ref(&other)), None, false),
            (object(right, std::slice::from_ref(&ours)), Some(&ours), false),
            (object(right, &[owner("x", false), ours.clone()]), Some(&ours), false),
            (object(wrong, &[]), None, true),
            (object(sizes(1, Some(1)), &[]), None, true),
            (object(Sizes::default(), &[]), None, true),
            (object(right, &[]), Some(&ours), true),
            (object(right, &[other]), Some(&ours), true),
            (object(right, &[owner("ours", false)]), Some(&ours), true),
        ] {
            assert_eq!(object.correction(right, wanted).is_some(), corrected, "{object:?}");
        }
    }

    #[test]
    fn a_correction_is_for_that_version_and_removes_a_limit() {
        let correction = object(sizes(1, Some(9)), &[]).correction(sizes(1 << 31, None), None);
        assert_eq!(
            correction.unwrap(),
            json!({"metadata": {"uid": "u", "resourceVersion": "7", "ownerReferences": []},
                   "capacity": "2Gi", "maximumVolumeSize": null})
        );
    }
}
