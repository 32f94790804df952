use serde_json::json;

use super::*;

const DRIVER: &str = "d.example.com";

/// How the driver calls a volume, where it is one of its own.
fn handle(volume: &Volume) -> Option<String> {
    let csi = volume.spec.csi.as_ref().filter(|csi| csi.driver == DRIVER)?;
    Some(csi.volume_handle.clone())
}

fn books() -> (VolumeIndex, ClaimIndex) {
    let identity = Identity { driver: DRIVER.into(), in_tree: None, node: None };
    let claims = ClaimIndex::new(identity.clone(), |uid| Some(format!("pvc-{uid}")), |_| {});
    let in_reach = |volume: &Volume| volume.name() != "elsewhere";
    (VolumeIndex::new(identity, claims.clone(), in_reach, handle), claims)
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

#[tokio::test(start_paused = true)]
async fn only_volumes_of_ours_with_something_due_are_kept() {
    let (book, _) = books();
    for (idle, driver) in [("Available", DRIVER), ("Released", "other")] {
        assert_eq!(
            book.observe(InformerEvent::Apply(volume("idle", idle, driver))),
            Wake::default()
        );
    }
    assert_eq!(book.len(), (0, 0));
    assert_eq!(book.observe(InformerEvent::Apply(released("pv"))).volumes, ["pv"]);
    assert_eq!(book.all(), ["pv"]);
    assert_eq!(
        book.observe(InformerEvent::Apply(volume("pv", "Available", DRIVER))),
        Wake::default()
    );
    assert_eq!(book.len(), (0, 0), "left, though not deleted");
}

#[tokio::test(start_paused = true)]
async fn of_a_volume_out_of_reach_only_the_finalizer_is_looked_after() {
    let (book, _) = books();
    assert_eq!(book.observe(InformerEvent::Apply(released("elsewhere"))), Wake::default());
    assert_eq!(book.len(), (0, 0));
    let bound = volume("elsewhere", "Bound", DRIVER);
    assert_eq!(book.observe(InformerEvent::Apply(bound)), Wake::default(), "nobody hurries");
    assert_eq!((book.to_adopt(), book.orphans()), (vec![], vec!["elsewhere".to_owned()]));
    let mut kept = volume("elsewhere", "Bound", DRIVER);
    kept.spec.persistent_volume_reclaim_policy = "Retain".into();
    kept.metadata.finalizers =
        Some(vec![crate::controller::volumes::finalizer::PROTECTION.to_owned()]);
    assert_eq!(book.observe(InformerEvent::Apply(kept)).volumes, ["elsewhere"]);
}

#[tokio::test(start_paused = true)]
async fn a_view_is_news_once_and_not_for_long() {
    let (book, _) = books();
    let news = || book.snapshot("pv").unwrap().is_news();
    book.observe(InformerEvent::InitApply(released("pv")));
    assert!(!news(), "it may have stood so for ever");
    book.observe(InformerEvent::Apply(released("pv")));
    assert!(news());
    assert!(!news(), "whoever comes again has waited");
    book.observe(InformerEvent::Apply(released("pv")));
    tokio::time::advance(NEWS).await;
    assert!(!news());
}

fn in_version(version: &str, mut volume: Volume) -> Volume {
    volume.metadata.resource_version = Some(version.to_owned());
    volume
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_remembered_until_the_object_is_gone() {
    let (book, _) = books();
    let pv = released("pv");
    book.observe(InformerEvent::Apply(pv.clone()));
    assert_eq!(book.snapshot("pv").unwrap().deletion, Deletion::NotYet);
    book.deletion_begins(&pv);
    book.deletion_reached(&pv, Deletion::AtDriver);
    assert_eq!(book.snapshot("pv").unwrap().deletion, Deletion::AtDriver);
    let mut successor = released("pv");
    successor.metadata.uid = Some("another".into());
    book.observe(InformerEvent::Apply(successor));
    let anew = book.snapshot("pv").unwrap().deletion;
    assert_eq!(anew, Deletion::NotYet, "another volume under the same name");
    book.observe(InformerEvent::Delete(pv.clone()));
    assert_eq!(book.len(), (1, 0), "the other one stays");
    book.deletion_reached(&pv, Deletion::Removed);
    assert_eq!(book.len(), (1, 0), "its end was seen already");
}

/// A list that was asked for later than a watch began shows the successor before the watch comes to its
/// predecessor's end.
#[tokio::test(start_paused = true)]
async fn a_late_end_does_not_take_the_successor_with_it() {
    let (book, _) = books();
    let mut successor = released("pv");
    successor.metadata.uid = Some("another".into());
    book.observe(InformerEvent::InitApply(successor.clone()));
    book.observe(InformerEvent::Delete(released("pv")));
    assert_eq!(book.all(), ["pv"]);
    book.observe(InformerEvent::Delete(successor));
    assert!(book.all().is_empty());
}

/// What a new list shows again as it was is no reason to try before a back-off ends.
#[tokio::test(start_paused = true)]
async fn a_list_that_shows_a_volume_as_it_was_wakes_nobody() {
    let (book, _) = books();
    let listed =
        |version| book.observe(InformerEvent::InitApply(in_version(version, released("pv"))));
    assert_eq!(listed("5").volumes, ["pv"]);
    book.observe(InformerEvent::Init);
    assert_eq!(listed("5"), Wake::default());
    assert_eq!(listed("6").volumes, ["pv"]);
}

/// Also where its end was missed.
#[tokio::test(start_paused = true)]
async fn the_end_of_one_wakes_who_waits_with_the_same_handle() {
    for is_missed in [false, true] {
        let (book, _) = books();
        let mut sharer = volume("sharer", "Bound", DRIVER);
        sharer.spec.persistent_volume_reclaim_policy = "Delete".into();
        sharer.spec.csi.as_mut().unwrap().volume_handle = "pv".into();
        sharer.status.phase = "Released".into();
        book.observe(InformerEvent::InitApply(sharer.clone()));
        book.observe(InformerEvent::InitApply(released("pv")));
        let woken = if is_missed {
            book.observe(InformerEvent::Init);
            book.observe(InformerEvent::InitApply(released("pv")));
            book.observe(InformerEvent::InitDone)
        } else {
            book.observe(InformerEvent::Delete(sharer))
        };
        assert_eq!(woken.volumes, ["pv"], "missed: {is_missed}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_vanished_between_two_lists_is_gone() {
    let (book, claims) = books();
    claims.on_event(InformerEvent::Apply(
        serde_json::from_value(json!({"metadata": {"uid": "u", "annotations": {"volume.kubernetes.io/storage-provisioner": DRIVER}}})).unwrap(),
    ));
    book.observe(InformerEvent::Apply(released("pv")));
    book.deletion_begins(&released("pv"));
    book.deletion_reached(&released("pv"), Deletion::AtDriver);
    book.observe(InformerEvent::Init);
    book.observe(InformerEvent::InitDone);
    assert_eq!(book.len(), (0, 0));
    assert!(claims.snapshot("u").unwrap().may_call, "its claim may get another");
}

#[tokio::test(start_paused = true)]
async fn every_volume_that_goes_past_is_compared_with_our_claims() {
    let (book, claims) = books();
    claims.on_event(InformerEvent::Apply(
        serde_json::from_value(json!({"metadata": {"uid": "u", "annotations": {"volume.kubernetes.io/storage-provisioner": DRIVER}}})).unwrap(),
    ));
    book.observe(InformerEvent::Apply(volume("any-name", "Pending", "another.driver")));
    assert!(!claims.snapshot("u").unwrap().may_call);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_remembered_while_nothing_is_due() {
    let (book, _) = books();
    book.observe(InformerEvent::Apply(released("pv")));
    book.deletion_begins(&released("pv"));
    // Some controller moves the phase there and back while the driver works.
    book.observe(InformerEvent::Apply(volume("pv", "Failed", DRIVER)));
    book.deletion_reached(&released("pv"), Deletion::AtDriver);
    book.observe(InformerEvent::Init);
    book.observe(InformerEvent::InitApply(volume("pv", "Failed", DRIVER)));
    book.observe(InformerEvent::InitDone);
    book.observe(InformerEvent::Apply(released("pv")));
    assert_eq!(book.snapshot("pv").unwrap().deletion, Deletion::AtDriver);
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_removed_once_only_its_echo_is_awaited() {
    let (book, _) = books();
    book.observe(InformerEvent::Apply(released("pv")));
    book.deletion_begins(&released("pv"));
    book.deletion_reached(&released("pv"), Deletion::AtDriver);
    assert!(!book.is_removed("pv") && !book.is_removed("unknown"));
    book.deletion_reached(&released("pv"), Deletion::Removed);
    assert!(book.is_removed("pv"));
}
