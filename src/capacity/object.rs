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
    kube::{
        objects::{LabelSelector, StorageCapacity, StorageCapacityBeta},
        quantity::Quantity,
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
        let is_ours = |ours: &OwnerReference| {
            self.owners.iter().any(|one| controls(one) && one.uid == ours.uid)
        };
        match owner.filter(|ours| !is_ours(ours)) {
            Some(ours) => Some(Correction { room, owners: adopted(&self.owners, ours) }),
            None if self.room == room => None,
            None => Some(Correction { room, owners: self.owners.clone() }),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(object: Value) -> Shown {
        serde_json::from_value::<StorageCapacity>(object).unwrap().into()
    }

    fn owner(uid: &str, controller: bool) -> OwnerReference {
        let controller = controller.then_some(true);
        OwnerReference { uid: uid.to_owned(), controller, ..OwnerReference::default() }
    }

    fn room(available: i64, largest: Option<i64>) -> Room {
        Room { available: Some(available), largest }
    }

    fn object(room: Room, owners: &[OwnerReference]) -> Object {
        let metadata = json!({"name": "n", "uid": "u", "resourceVersion": "7"});
        let object = shown(json!({"metadata": metadata, "storageClassName": "fast"})).keep();
        Object { room, owners: owners.to_vec(), ..object }
    }

    #[test]
    fn what_an_object_is_about_goes_by_what_its_selector_selects() {
        let about = |nodes: Value| {
            shown(json!({"storageClassName": "fast", "nodeTopology": nodes})).keep().pair
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
        let read = |object: Value| shown(object).keep().room;
        assert_eq!(read(json!({"capacity": "1024Mi"})), room(1 << 30, None));
        assert_eq!(
            read(json!({"capacity": "1G", "maximumVolumeSize": "1500m"})),
            room(1_000_000_000, Some(2))
        );
        assert_eq!(read(json!({"capacity": "much"})), Room::default());
    }

    #[test]
    fn an_object_is_ours_by_both_labels() {
        let names = Names::new("d", Some("n1"));
        let ours = |labels: Value| shown(json!({"metadata": {"labels": labels}})).is_ours(&names);
        let manager = "external-provisioner-n1";
        assert!(ours(json!({DRIVER_LABEL: "d", MANAGER_LABEL: manager, "more": ""})));
        assert!(!ours(json!({DRIVER_LABEL: "e", MANAGER_LABEL: manager})));
        assert!(!ours(json!({DRIVER_LABEL: "d", MANAGER_LABEL: "external-provisioner"})));
        assert!(!ours(json!({DRIVER_LABEL: "d"})));
        assert!(!ours(json!(null)));
    }

    #[test]
    fn an_object_that_says_the_same_and_is_owned_is_left_alone() {
        let (ours, other) = (owner("ours", true), owner("other", true));
        let (right, wrong) = (room(1, None), room(2, None));
        for (object, wanted, corrected) in [
            (object(right, &[]), None, false),
            (object(right, std::slice::from_ref(&other)), None, false),
            (object(right, std::slice::from_ref(&ours)), Some(&ours), false),
            (object(right, &[owner("x", false), ours.clone()]), Some(&ours), false),
            (object(wrong, &[]), None, true),
            (object(room(1, Some(1)), &[]), None, true),
            (object(Room::default(), &[]), None, true),
            (object(right, &[]), Some(&ours), true),
            (object(right, &[other]), Some(&ours), true),
            (object(right, &[owner("ours", false)]), Some(&ours), true),
        ] {
            assert_eq!(object.correction(right, wanted).is_some(), corrected, "{object:?}");
        }
    }

    #[test]
    fn our_owner_takes_the_place_of_a_controller_and_stands_beside_others() {
        let ours = owner("ours", true);
        for (owners, expected) in [
            (vec![], vec!["ours"]),
            (vec![owner("other", false)], vec!["other", "ours"]),
            (vec![owner("old", true), owner("other", false)], vec!["other", "ours"]),
            (vec![owner("ours", false)], vec!["ours"]),
        ] {
            let correction = object(room(1, None), &owners).correction(room(1, None), Some(&ours));
            let uids: Vec<String> =
                correction.unwrap().owners.into_iter().map(|owner| owner.uid).collect();
            assert_eq!(uids, expected);
        }
        let kept = object(room(1, None), &[owner("other", true)]);
        let correction = kept.correction(room(2, None), None).unwrap();
        assert_eq!(correction.owners, [owner("other", true)], "nobody else's without one of ours");
    }

    #[test]
    fn a_correction_is_for_that_version_and_takes_a_limit_away() {
        let correction = object(room(1, Some(9)), &[]).correction(room(1 << 31, None), None);
        let patch = correction.unwrap().patch(&object(room(1, Some(9)), &[]));
        assert_eq!(
            patch,
            json!({"metadata": {"uid": "u", "resourceVersion": "7", "ownerReferences": []},
                   "capacity": "2Gi", "maximumVolumeSize": null})
        );
    }

    #[test]
    fn a_new_object_holds_what_the_originals_hold() {
        let names = Names::new("d", None);
        let pair = |labels: &[(&str, &str)]| Pair {
            class: "fast".into(),
            segment: labels.iter().copied().collect(),
        };
        let labels = json!({DRIVER_LABEL: "d", MANAGER_LABEL: "external-provisioner"});
        let zoned = body(&names, "n", &pair(&[("zone", "z")]), room(3, Some(2)), None);
        assert_eq!(
            zoned,
            json!({"kind": "CSIStorageCapacity", "metadata": {"name": "n", "labels": labels},
                   "storageClassName": "fast", "nodeTopology": {"matchLabels": {"zone": "z"}},
                   "capacity": "3", "maximumVolumeSize": "2"})
        );
        let owner = owner("ours", true);
        let everywhere = body(&names, "n", &pair(&[]), room(0, None), Some(&owner));
        assert_eq!(everywhere["nodeTopology"], json!({}));
        assert_eq!(everywhere["capacity"], "0", "no room is told as well");
        assert_eq!(everywhere["metadata"]["ownerReferences"][0]["uid"], "ours");
    }
}
