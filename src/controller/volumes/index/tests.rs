use serde_json::json;

use super::*;
use crate::controller::{
    model::unusable_volume::UnusableVolume,
    provisioner::{NotDeleted, ProvisionRequest},
};

const DRIVER: &str = "d.example.com";

/// Reaches all volumes, and is never asked to delete one.
struct Reaching;

impl Deleter for Reaching {
    type PreparedDelete = ();

    fn handle(&self, volume: &Volume) -> Option<VolumeHandle> {
        let csi = volume.spec.csi.as_ref().filter(|csi| csi.driver == DRIVER)?;
        Some((*csi.volume_handle).into())
    }

    fn should_delete(&self, _volume: &Volume) -> bool {
        true
    }

    fn check_detached(&self, _volume: &Volume) -> Result<(), NotDeleted> {
        unreachable!()
    }

    async fn prepare_delete(&self, _volume: &Volume) -> Result<(), NotDeleted> {
        unreachable!()
    }

    async fn delete(&self, _volume: &Volume, (): ()) -> Result<(), NotDeleted> {
        unreachable!()
    }

    async fn discard(
        &self,
        _request: &ProvisionRequest,
        _unusable: &UnusableVolume,
        _is_safe: impl Fn() -> bool + Send + Sync,
    ) -> Result<(), Failure> {
        unreachable!()
    }
}

fn index() -> VolumeIndex<Reaching> {
    VolumeIndex::new(ProvisionerIdentity::of_driver(DRIVER), Arc::new(Reaching))
}

fn volume(name: &str, phase: &str, driver: &str) -> Volume {
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": format!("uid-{name}")},
        "spec": {"csi": {"driver": driver, "volumeHandle": name}, "persistentVolumeReclaimPolicy": "Delete",
                 "claimRef": {"uid": "u"}},
        "status": {"phase": phase},
    }))
    .unwrap()
}

fn released(name: &str) -> Volume {
    volume(name, "Released", DRIVER)
}

/// Another PersistentVolume that took the name.
fn another(name: &str) -> Volume {
    let mut successor = released(name);
    successor.metadata.uid = Some("another".into());
    successor
}

/// The number of volumes that are kept.
fn kept(index: &VolumeIndex<Reaching>) -> usize {
    index.inner.lock().volumes.len()
}

#[tokio::test(start_paused = true)]
async fn only_volumes_of_ours_with_something_due_are_kept() {
    let index = index();
    for (idle, driver) in [("Available", DRIVER), ("Released", "other")] {
        assert_eq!(index.on_event(InformerEvent::Apply(volume("idle", idle, driver))), []);
    }
    assert_eq!(kept(&index), 0);
    assert_eq!(index.on_event(InformerEvent::Apply(released("pv"))), ["pv"].map(Key::from));
    assert_eq!(index.all(), ["pv"].map(Key::from));
    assert_eq!(index.on_event(InformerEvent::Apply(volume("pv", "Available", DRIVER))), []);
    assert_eq!(kept(&index), 0, "left, though not deleted");
}

fn in_version(version: &str, mut volume: Volume) -> Volume {
    volume.metadata.resource_version = Some(version.into());
    volume
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_remembered_until_the_object_is_gone() {
    let index = index();
    let pv = released("pv");
    index.on_event(InformerEvent::Apply(pv.clone()));
    assert_eq!(index.deletion("pv"), Deletion::Pending);
    index.set_deletion(&Arc::new(pv.clone()), Deletion::DeletedAtDriver);
    assert_eq!(index.deletion("pv"), Deletion::DeletedAtDriver);
    index.on_event(InformerEvent::Apply(another("pv")));
    let anew = index.deletion("pv");
    assert_eq!(anew, Deletion::Pending, "another volume under the same name");
    index.on_event(InformerEvent::Delete(pv.clone()));
    assert_eq!(kept(&index), 1, "the other one stays");
    index.set_deletion(&Arc::new(pv.clone()), Deletion::Removed);
    assert_eq!(index.deletion("pv"), Deletion::Pending, "it is gone already");
    index.on_event(InformerEvent::Delete(another("pv")));
    index.set_deletion(&Arc::new(pv), Deletion::Removed);
    assert_eq!(kept(&index), 0, "nor is it kept for its name alone");
    index.on_event(InformerEvent::Apply(released("pv")));
    index.on_event(InformerEvent::InitDone(Listed::default()));
    assert_eq!(kept(&index), 0, "missing in a new list");
}

/// A list that was requested after the watch may contain the successor before the watch reports the
/// deletion of its predecessor.
#[tokio::test(start_paused = true)]
async fn a_late_deletion_event_does_not_remove_the_successor() {
    let index = index();
    let successor = another("pv");
    index.on_event(InformerEvent::InitApply(successor.clone()));
    index.on_event(InformerEvent::Delete(released("pv")));
    assert_eq!(index.all(), ["pv"].map(Key::from));
    index.on_event(InformerEvent::Delete(successor));
    assert!(index.all().is_empty());
}

/// A new list repeats volumes that are in their back-off.
#[tokio::test(start_paused = true)]
async fn an_unchanged_volume_in_a_new_list_is_not_queued() {
    let index = index();
    let listed =
        |version| index.on_event(InformerEvent::InitApply(in_version(version, released("pv"))));
    assert_eq!(listed("5"), ["pv"].map(Key::from));
    assert_eq!(listed("5"), []);
    assert_eq!(listed("6"), ["pv"].map(Key::from));
}

/// Also if its deletion was missed.
#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_volume_queues_those_with_the_same_handle() {
    let mut sharer = released("sharer");
    sharer.spec.csi.as_mut().unwrap().volume_handle = "pv".into();
    for gone in [
        InformerEvent::Delete(sharer.clone()),
        InformerEvent::InitDone(Listed::of(&[released("pv")])),
    ] {
        let index = index();
        index.on_event(InformerEvent::InitApply(sharer.clone()));
        index.on_event(InformerEvent::InitApply(released("pv")));
        assert_eq!(index.on_event(gone), ["pv"].map(Key::from));
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_remembered_while_nothing_is_due() {
    let index = index();
    index.on_event(InformerEvent::Apply(released("pv")));
    // Another controller changes the phase and changes it back while the driver works.
    index.on_event(InformerEvent::Apply(volume("pv", "Failed", DRIVER)));
    index.set_deletion(&Arc::new(released("pv")), Deletion::DeletedAtDriver);
    for event in InformerEvent::list(vec![volume("pv", "Failed", DRIVER)]) {
        index.on_event(event);
    }
    index.on_event(InformerEvent::Apply(released("pv")));
    assert_eq!(index.deletion("pv"), Deletion::DeletedAtDriver);
}
