//! One CSIStorageCapacity: what is kept of it, what it should say, and the change from one to the
//! other.
//!
//! Pure. Promises that what is compared is content (sizes by value, selectors by what they select),
//! that a change touches no more than sizes and owners, and that an owner of others stays one. Of
//! controllers there is one only: the API server refuses a second, so ours takes the place of
//! another.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde_json::{Value, json};

use super::{
    names::{DRIVER_LABEL, MANAGER_LABEL, Names},
    segment::Pair,
};
use crate::{
    csi::proto::GetCapacityResponse,
    kube_api::{
        quantity::Quantity,
        views::{LabelSelector, StorageCapacity, StorageCapacityBeta},
    },
};

/// What is kept of an object of ours.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Object {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) version: String,
    /// Orders objects of the same pair: the oldest one stays.
    pub(super) created: Option<Time>,
    /// What it is about; none where it is about no segment that could be ours.
    pub(super) pair: Option<Pair>,
    pub(super) room: Room,
    pub(super) owners: Vec<OwnerReference>,
    /// Somebody has deleted it, and it waits for its finalizers.
    pub(super) terminating: bool,
}

/// How much room there is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Room {
    /// In all; none where an object does not say.
    pub(super) available: Option<i64>,
    /// For one volume, where there is a limit.
    pub(super) largest: Option<i64>,
}

impl From<&GetCapacityResponse> for Room {
    fn from(answer: &GetCapacityResponse) -> Self {
        Self { available: Some(answer.available_capacity), largest: answer.maximum_volume_size }
    }
}

/// An object as whichever version of the API shows it.
pub(super) struct Shown {
    metadata: ObjectMeta,
    class: String,
    nodes: Option<LabelSelector>,
    capacity: Option<String>,
    largest: Option<String>,
}

/// Both versions have the same fields.
macro_rules! shown {
    ($($view:ty),*) => {$(
        impl From<$view> for Shown {
            fn from(seen: $view) -> Self {
                Self {
                    metadata: seen.metadata,
                    class: seen.storage_class_name,
                    nodes: seen.node_topology,
                    capacity: seen.capacity,
                    largest: seen.maximum_volume_size,
                }
            }
        }
    )*};
}

shown!(StorageCapacity, StorageCapacityBeta);

impl Shown {
    /// Whether both labels say that it is ours. The server filters by them; one that does not must
    /// not cost others their objects.
    pub(super) fn is_ours(&self, names: &Names) -> bool {
        let label = |key: &str| self.metadata.labels.as_ref()?.get(key).map(String::as_str);
        label(DRIVER_LABEL) == Some(&names.driver) && label(MANAGER_LABEL) == Some(&names.manager)
    }

    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// What is kept of it.
    pub(super) fn keep(self) -> Object {
        let bytes = |text: Option<String>| Quantity::parse(&text?).ok().map(|size| size.value());
        let metadata = self.metadata;
        Object {
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            created: metadata.creation_timestamp,
            pair: pair(&self.class, self.nodes),
            room: Room { available: bytes(self.capacity), largest: bytes(self.largest) },
            owners: metadata.owner_references.unwrap_or_default(),
            terminating: metadata.deletion_timestamp.is_some(),
        }
    }
}

/// What an object is about. No selector selects no node, an empty one all.
fn pair(class: &str, nodes: Option<LabelSelector>) -> Option<Pair> {
    let nodes = nodes.filter(|nodes| nodes.match_expressions.is_empty())?;
    Some(Pair { class: class.into(), segment: nodes.match_labels.into_iter().collect() })
}

/// A new object.
pub(super) fn body(
    names: &Names,
    name: &str,
    pair: &Pair,
    room: Room,
    owner: Option<&OwnerReference>,
) -> Value {
    let mut metadata = json!({
        "name": name,
        "labels": {DRIVER_LABEL: names.driver, MANAGER_LABEL: names.manager},
    });
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
    write(&mut object, room);
    object
}

/// What is to be changed of an object, as members of it; none where it is as it should be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Correction {
    pub(super) room: Room,
    pub(super) owners: Vec<OwnerReference>,
}

impl Object {
    /// What is wrong with the object, given how much room there is and who is to own it.
    pub(super) fn correction(
        &self,
        room: Room,
        owner: Option<&OwnerReference>,
    ) -> Option<Correction> {
        let owned = owner.is_none_or(|ours| {
            self.owners.iter().any(|owner| controls(owner) && owner.uid == ours.uid)
        });
        if self.room == room && owned {
            return None;
        }
        let owners = match owner {
            Some(ours) if !owned => adopted(&self.owners, ours),
            _ => self.owners.clone(),
        };
        Some(Correction { room, owners })
    }
}

fn controls(owner: &OwnerReference) -> bool {
    owner.controller == Some(true)
}

/// The owners with ours as the one that controls.
fn adopted(owners: &[OwnerReference], ours: &OwnerReference) -> Vec<OwnerReference> {
    let others = owners.iter().filter(|owner| !controls(owner) && owner.uid != ours.uid);
    others.chain([ours]).cloned().collect()
}

impl Correction {
    /// Writes it into an object.
    pub(super) fn write(&self, object: &mut Value) {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("ownerReferences".to_owned(), json!(self.owners));
        }
        write(object, self.room);
    }

    /// The same as a merge patch of the object in that version.
    pub(super) fn patch(&self, object: &Object) -> Value {
        let mut patch = json!({"metadata": {"uid": object.uid, "resourceVersion": object.version}, "maximumVolumeSize": null});
        self.write(&mut patch);
        patch
    }
}

/// Writes the sizes; what there is none of becomes null, which is absent.
fn write(object: &mut Value, room: Room) {
    let text = |bytes: Option<i64>| bytes.map(|bytes| Quantity::from_bytes(bytes).to_string());
    if let Some(fields) = object.as_object_mut() {
        fields.insert("capacity".to_owned(), json!(text(room.available)));
        fields.insert("maximumVolumeSize".to_owned(), json!(text(room.largest)));
    }
}
