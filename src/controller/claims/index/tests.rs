mod nodes;
mod overview;
mod records;
mod returns;
mod sources;

use serde_json::{Value, json};

use tokio::time::{Duration, Instant};

use super::*;
use crate::{
    controller::{
        claims::state::Demand,
        events::EVENT_LASTS,
        model::finalizer::PROTECTION,
        ownership::PROVISIONED_BY,
        provisioner::{Failure, Next, Outcome, ProvisionRequest},
    },
    flags::VolumeNaming,
    kube::{
        InformerEvent, Listed,
        informer::hash,
        objects::{CsiSource, Volume},
    },
    logging::testing::logged,
};

const DRIVER: &str = "d.example.com";

fn empty_index() -> ClaimIndex {
    index_of_node(None)
}

fn index_of_node(node: Option<&str>) -> ClaimIndex {
    let node = node.map(str::to_owned);
    let identity = ProvisionerIdentity { node, ..ProvisionerIdentity::of_driver(DRIVER) };
    ClaimIndex::new(identity, |_, _| {})
}

/// An index whose volumes all get the name `pvc-`.
fn index_of_cut_names() -> ClaimIndex {
    let naming = VolumeNaming { uuid_length: 0, ..VolumeNaming::default() };
    ClaimIndex::new(
        ProvisionerIdentity { naming, ..ProvisionerIdentity::of_driver(DRIVER) },
        |_, _| {},
    )
}

/// The index of a leader that has listed everything since its term began.
fn leading_index() -> ClaimIndex {
    lead(empty_index())
}

fn is_superseded(index: &ClaimIndex) -> bool {
    index.update("u", Entry::take_superseded).flatten().is_some()
}

fn lead(index: ClaimIndex) -> ClaimIndex {
    index.on_event(InformerEvent::InitDone(Listed::default()));
    index.on_volumes_listed(&Listed::default());
    index.both_listed();
    index
}

/// A PersistentVolume that a provisioner of our driver has made.
fn provisioned_pv(name: &str, claim_uid: &str) -> Volume {
    let mut volume = volume(name, claim_uid);
    volume.metadata.annotations.insert("pv.kubernetes.io/provisioned-by".into(), DRIVER.into());
    volume
}

fn must_verify(index: &ClaimIndex, uid: &str) -> bool {
    index.known(uid).unwrap().must_verify()
}

/// The live reads of the claim are done.
fn set_verified(index: &ClaimIndex, uid: &str) {
    let required = index.known(uid).unwrap().required;
    index.update(uid, |it| it.verified(required));
}

impl ClaimIndex {
    fn start_call(&self, uid: &str, request: &ProvisionRequest) -> bool {
        self.update(uid, |it| it.call_started(request)) == Some(true)
    }

    fn on_outcome(&self, uid: &str, outcome: &Outcome) -> (Next, u32) {
        let ended = self.update(uid, |it| it.ended(outcome, Instant::now(), self.identity()));
        ended.unwrap_or((Next::Drop, 0))
    }
}

fn claim_with(uid: &str, change: impl FnOnce(&mut Value)) -> Claim {
    let mut claim = json!({
        "metadata": {"namespace": "ns", "name": uid, "uid": uid, "resourceVersion": "5",
                     "annotations": {"volume.kubernetes.io/storage-provisioner": DRIVER}},
        "spec": {"storageClassName": "fast"},
    });
    change(&mut claim);
    serde_json::from_value(claim).unwrap()
}

fn claim(uid: &str) -> Claim {
    claim_with(uid, |_| {})
}

fn bound(uid: &str) -> Claim {
    claim_with(uid, |claim| claim["spec"]["volumeName"] = json!("pvc-x"))
}

fn volume(name: &str, claim_uid: &str) -> Volume {
    serde_json::from_value(
        json!({"metadata": {"name": name, "uid": name}, "spec": {"claimRef": {"uid": claim_uid}}}),
    )
    .unwrap()
}

fn request(uid: &str) -> ProvisionRequest {
    ProvisionRequest {
        claim: Arc::new(claim(uid)),
        class: Arc::default(),
        volume_name: Ok(format!("pvc-{uid}")),
        selected_node: None,
        withdrawn: false,
        source: None,
        topology: None,
    }
}

/// The index of a leader with the new claim `u`.
fn with_claim() -> ClaimIndex {
    let index = leading_index();
    assert_eq!(index.on_event(InformerEvent::Apply(claim("u"))), ["u"].map(Key::from));
    index
}

fn background() -> Outcome {
    Outcome::Background(Failure::new("unknown"))
}

#[test]
fn claims_of_other_provisioners_and_bound_claims_are_not_kept() {
    let index = empty_index();
    let foreign = claim_with("f", |claim| claim["metadata"]["annotations"] = json!({}));
    for dropped in [foreign, bound("b")] {
        assert!(index.on_event(InformerEvent::InitApply(dropped)).is_empty());
    }
    assert!(index.is_empty());
}

/// The API server takes any text in the field beside the annotation, which counts.
#[test]
fn a_claim_is_of_the_flow_of_the_class_that_is_asked_with() {
    let index = leading_index();
    let annotated = |uid: &str, field: &str| {
        let class = "volume.beta.kubernetes.io/storage-class";
        claim_with(uid, |claim| {
            claim["metadata"]["annotations"][class] = json!("fast");
            claim["spec"]["storageClassName"] = json!(field);
        })
    };
    for claim in [claim("plain"), annotated("one", "x-1"), annotated("two", "x-2")] {
        index.on_event(InformerEvent::Apply(claim));
    }
    let flows = ["plain", "one", "two"]
        .map(|uid| index.flow(uid, &|(class, namespace)| hash(&format!("{namespace}/{class}"))).id);
    assert_eq!(flows, [hash("ns/fast"); 3]);
    // A call that is open is repeated with its class, whatever the claim says by then.
    assert!(index.start_call("one", &request("one")));
    let flow = index.flow("one", &|(class, _)| hash(class));
    assert_eq!((flow.id, flow.is_repeat), (hash(request("one").class.name()), true));
}

/// Also one that nobody had annotated when it was listed.
#[test]
fn a_listed_claim_is_verified_before_its_first_call() {
    let unassigned = |uid: &str| claim_with(uid, |it| it["metadata"]["annotations"] = json!({}));
    for claim_then in [&claim as &dyn Fn(&str) -> Claim, &unassigned] {
        let index = empty_index();
        let listed = InformerEvent::list(vec![claim_then("listed")]);
        listed.for_each(|event| drop(index.on_event(event)));
        index.on_event(InformerEvent::Apply(claim_then("early")));
        index.both_listed();
        index.on_event(InformerEvent::Apply(claim_then("new")));
        let all = ["listed", "early", "new"];
        for uid in all {
            index.on_event(InformerEvent::Apply(claim(uid)));
        }
        assert_eq!(all.map(|uid| must_verify(&index, uid)), [true, true, false]);
        set_verified(&index, "listed");
        assert!(!must_verify(&index, "listed"));
    }
}

#[tokio::test]
async fn a_name_without_the_whole_uid_is_always_looked_up() {
    let index = lead(index_of_cut_names());
    index.on_event(InformerEvent::Apply(claim("0a1b")));
    let must_verify = || must_verify(&index, "0a1b");
    assert!(must_verify());
    set_verified(&index, "0a1b");
    index.on_outcome("0a1b", &Outcome::NotPrepared(Failure::new("no secret").into()));
    assert!(must_verify(), "another claim may have got it since");
    for (outcome, expected) in
        [(Outcome::Refused(Failure::new("no"), Next::Retry), true), (background(), false)]
    {
        set_verified(&index, "0a1b");
        assert!(index.start_call("0a1b", &request("0a1b")));
        index.on_outcome("0a1b", &outcome);
        assert_eq!(
            must_verify(),
            expected,
            "after an unknown outcome its volume is what that call makes"
        );
    }
}

#[tokio::test]
async fn a_bound_claim_is_removed_from_the_index() {
    let index = with_claim();
    assert!(index.start_call("u", &request("u")));
    index.on_outcome("u", &Outcome::Provisioned(Box::default()));
    assert!(index.known("u").unwrap().unsaved().is_some());
    index.update("u", Entry::saved);
    assert!(!index.known("u").unwrap().state.may_call());
    assert!(index.on_event(InformerEvent::Apply(bound("u"))).is_empty());
    assert!(index.is_empty());
}

#[tokio::test]
async fn an_open_call_is_followed_whatever_becomes_of_the_claim() {
    for event in [
        InformerEvent::Delete(claim("u")),
        InformerEvent::Apply(bound("u")),
        InformerEvent::Apply(claim_with("u", |claim| claim["metadata"]["annotations"] = json!({}))),
        InformerEvent::InitDone(Listed::default()),
    ] {
        let index = with_claim();
        assert!(index.start_call("u", &request("u")));
        assert_eq!(index.on_outcome("u", &background()), (Next::Repeat, 1));
        assert_eq!(index.on_event(event.clone()), ["u"].map(Key::from), "{event:?}");
        let snapshot = index.known("u").unwrap();
        assert_eq!(snapshot.demand(), Demand::Withdrawn);
        assert!(
            snapshot.state.may_call() && snapshot.request.is_some(),
            "the call is repeated unchanged"
        );
        index.start_call("u", &request("u"));
        index.on_outcome("u", &Outcome::Provisioned(Box::default()));
        index.update("u", Entry::saved);
        assert!(index.is_empty(), "{event:?}");
    }
}

#[test]
fn an_unreadable_claim_is_not_removed() {
    let index = with_claim();
    index.on_event(InformerEvent::Unreadable {
        namespace: "ns".into(),
        name: "u".into(),
        uid: "u".into(),
    });
    let listed = Listed::of(&[claim("u")]);
    assert!(index.on_event(InformerEvent::InitDone(listed)).is_empty());
    assert_eq!(index.uids(|_| true), ["u"].map(Key::from));
}

#[tokio::test]
async fn polls_are_counted_in_a_row() {
    let index = with_claim();
    let ask = |outcome: &Outcome| {
        index.start_call("u", &request("u"));
        index.on_outcome("u", outcome).1
    };
    assert_eq!([ask(&background()), ask(&background())], [1, 2]);
    assert_eq!(ask(&Outcome::Refused(Failure::new("no"), Next::Retry)), 0);
    assert_eq!(ask(&background()), 1);
}

#[test]
fn a_volume_of_any_name_for_the_claim_makes_it_done() {
    let index = with_claim();
    index.on_volume(&volume("made-by-another", "u"));
    assert!(!index.known("u").unwrap().state.may_call());
}

#[tokio::test(start_paused = true)]
async fn an_obstacle_is_reported_after_a_while_and_once_while_its_event_lasts() {
    let index = with_claim();
    let is_due = |what: &str| {
        let patience = Duration::from_secs(5);
        index.update("u", |it| it.blocked(what, patience)).unwrap().1
    };
    let later = |wait: Duration| tokio::time::advance(wait);
    assert!(!is_due("class missing"));
    later(Duration::from_secs(4)).await;
    assert!(!is_due("class foreign"), "something else, from now on");
    later(Duration::from_secs(5)).await;
    assert!(is_due("class foreign"));
    later(EVENT_LASTS / 2).await;
    assert!(!is_due("class foreign"));
    later(EVENT_LASTS / 2).await;
    assert!(is_due("class foreign"), "events do not last for ever");
}

#[test]
fn two_claims_that_share_a_name_do_not_take_it_from_each_other() {
    let index = index_of_cut_names();
    index.on_event(InformerEvent::Apply(claim("first")));
    index.on_event(InformerEvent::Apply(claim("second")));
    index.on_event(InformerEvent::Delete(claim("first")));
    assert_eq!(index.on_volume_deleted(&volume("pvc-", "stranger")), Some("second".into()));
}

#[tokio::test]
async fn no_call_starts_before_verification_or_for_a_deleted_claim() {
    let index = with_claim();
    index.on_volume(&volume("pvc-u", "stranger"));
    assert!(!index.start_call("u", &request("u")), "the name is taken since the plan was made");
    let before = index.known("u").unwrap().required;
    index.on_volume(&volume("pvc-u", "u"));
    index.on_volume_deleted(&volume("pvc-u", "u"));
    index.update("u", |it| it.verified(before));
    assert!(must_verify(&index, "u"), "to be verified anew");
    set_verified(&index, "u");
    index.on_event(InformerEvent::Apply(claim_with("u", |claim| {
        claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    })));
    assert!(!index.start_call("u", &request("u")), "deleted since the plan was made");
}

/// Another's PersistentVolume under the name may be gone, and its deletion missed.
#[test]
fn a_claim_whose_name_was_taken_is_queued_once_the_name_is_free() {
    let index = with_claim();
    index.on_volume(&volume("pvc-u", "stranger"));
    assert!(index.on_volumes_listed(&Listed::default()).is_empty(), "no live read found it");
    index.update("u", Entry::await_pv_gone);
    assert_eq!(index.on_volumes_listed(&Listed::default()), ["u"].map(Key::from));
    assert!(index.on_volumes_listed(&Listed::default()).is_empty(), "once");
    index.update("u", Entry::await_pv_gone);
    assert_eq!(index.on_volume_deleted(&volume("pvc-u", "stranger")), Some(Key::from("u")));
    index.on_volume(&volume("pvc-u", "u"));
    assert_eq!(index.on_volume_deleted(&volume("pvc-u", "u")), None, "its own may go like any");
}

/// The list is older than the PersistentVolume: it looks deleted, but only until it is read or seen.
#[tokio::test]
async fn a_claim_whose_volume_was_saved_while_a_list_ran_is_verified_and_not_asked_for() {
    let index = with_claim();
    set_verified(&index, "u");
    assert!(index.start_call("u", &request("u")));
    index.on_outcome("u", &Outcome::Provisioned(Box::default()));
    index.update("u", Entry::saved);
    index.on_volumes_listed(&Listed::default());
    assert!(must_verify(&index, "u"));
    index.on_volume(&volume("pvc-u", "u"));
    assert!(!index.known("u").unwrap().state.may_call(), "its event comes with the watch");
    index.on_volumes_listed(&Listed::of(&[volume("pvc-u", "u")]));
    assert!(!index.known("u").unwrap().state.may_call(), "it is in the next list");
}

/// Also a volume of another driver, and if its deletion was missed.
#[test]
fn every_event_of_a_volume_is_compared_with_our_claims() {
    let may_call = |index: &ClaimIndex| index.known("u").unwrap().state.may_call();
    let of_another = || {
        let mut pv = volume("any-name", "u");
        pv.spec.csi = Some(CsiSource { driver: "other".into(), ..CsiSource::default() });
        pv
    };
    for gone in [InformerEvent::Delete(of_another()), InformerEvent::InitDone(Listed::default())] {
        let index = with_claim();
        index.on_volume_event(&InformerEvent::Apply(of_another()));
        assert!(!may_call(&index));
        index.on_volume_event(&gone);
        assert!(may_call(&index), "it may get another one");
    }
    let index = with_claim();
    let [namespace, uid] = ["", "uid"].map(str::to_owned);
    let unreadable = InformerEvent::Unreadable { namespace, name: "pvc-u".into(), uid };
    index.on_volume_event(&unreadable);
    assert!(must_verify(&index, "u"));
}

#[test]
fn the_deletion_of_another_claims_volume_does_not_affect_a_claim_with_a_volume() {
    let index = with_claim();
    index.on_volume(&volume("other-name", "u"));
    index.on_volume_deleted(&volume("pvc-u", "stranger"));
    assert!(!index.known("u").unwrap().state.may_call());
}

#[tokio::test(start_paused = true)]
async fn the_census_counts_claims_by_state_and_those_that_wait_too_long_by_class() {
    let counted = |by_state: &[(&'static str, usize)]| {
        let mut census = Census::default();
        census.by_state.extend(by_state.iter().copied());
        census
    };
    let index = with_claim();
    tokio::time::advance(Census::OVERDUE_AFTER).await;
    index.on_event(InformerEvent::Apply(claim("v")));
    assert!(index.start_call("v", &request("v")));
    let oldest = Census::OVERDUE_AFTER;
    let both = counted(&[("waiting", 1), ("in_flight", 1)]);
    assert_eq!(index.census(), Census { oldest, ..both });
    tokio::time::advance(Duration::from_secs(1)).await;
    // Another event does not reset the age.
    index.on_event(InformerEvent::Apply(claim("u")));
    assert_eq!(index.census().overdue, [("fast".into(), 1)].into());

    index.on_outcome("v", &background());
    index.on_event(InformerEvent::Apply(bound("u")));
    let oldest = Duration::from_secs(1);
    assert_eq!(index.census(), Census { oldest, ..counted(&[("background", 1)]) });
    index.on_volume(&volume("pvc-v", "v"));
    assert_eq!(index.census(), counted(&[]), "done is out of work");
}

/// So does one of our driver that was another claim's before: an admin has freed it.
#[tokio::test]
async fn a_volume_made_by_hand_closes_an_open_call_only_under_its_name_and_with_a_report() {
    let mut of_another = provisioned_pv("pvc-u", "u");
    of_another.metadata.annotations.insert(PROVISIONED_BY.into(), "other".into());
    for (state, volume, kept, reported) in [
        ("open", volume("by-hand", "u"), true, false),
        ("open", provisioned_pv("pvc-old", "u"), true, false),
        ("open", volume("pvc-u", "u"), false, true),
        ("open", of_another, false, true),
        ("open", provisioned_pv("pvc-u", "u"), false, false),
        ("none", volume("by-hand", "u"), false, false),
    ] {
        let index = with_claim();
        if state == "open" {
            assert!(index.start_call("u", &request("u")));
            index.on_outcome("u", &background());
        }
        index.on_volume(&volume);
        index.on_event(InformerEvent::Apply(bound("u")));
        assert_eq!(is_superseded(&index), reported, "{state} {volume:?}");
        assert_eq!(index.known("u").is_some(), kept, "{state} {volume:?}");
    }
}

/// Its event can be missed, also after the claim has been bound or given to another driver.
#[tokio::test]
async fn a_relist_shows_that_a_claim_whose_call_is_open_is_gone() {
    let index = with_claim();
    assert!(index.start_call("u", &request("u")));
    index.on_outcome("u", &background());
    index.on_event(InformerEvent::Apply(bound("u")));
    assert!(!index.known("u").unwrap().is_gone);
    let relist = || index.on_event(InformerEvent::InitDone(Listed::default()));
    assert_eq!(relist(), ["u"].map(Key::from));
    assert!(index.known("u").unwrap().is_gone);
    assert!(relist().is_empty(), "it is known");
}

/// The next leader repeats only what a claim or its record shows.
#[tokio::test]
async fn the_end_of_the_process_names_calls_that_nobody_will_follow() {
    let kept = claim_with("u", |claim| {
        claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    for (event, is_named) in [
        (InformerEvent::Apply(claim("u")), false),
        (InformerEvent::Apply(kept), true),
        (InformerEvent::Delete(claim("u")), true),
    ] {
        let index = with_claim();
        assert!(index.start_call("u", &request("u")));
        index.on_outcome("u", &background());
        index.on_event(event.clone());
        let (log, _guard) = logged();
        index.log_unfinished();
        assert_eq!(log.text().contains("suspected leak"), is_named, "{event:?}");
    }
}

#[tokio::test]
async fn a_volume_that_goes_unseen_during_a_call_does_not_close_it() {
    let index = with_claim();
    assert!(index.start_call("u", &request("u")));
    index.on_volume(&provisioned_pv("pvc-u", "u"));
    index.on_volumes_listed(&Listed::default());
    index.on_outcome("u", &background());
    assert!(index.known("u").unwrap().state.may_call());
}

/// An admin gives the PersistentVolume to another claim, and perhaps deletes it.
#[test]
fn a_claim_whose_volume_is_given_to_another_claim_is_looked_up_again() {
    let index = with_claim();
    index.on_volume(&provisioned_pv("pvc-u", "u"));
    assert!(!index.known("u").unwrap().state.may_call());
    index.on_volume(&provisioned_pv("pvc-u", "other"));
    assert!(index.known("u").unwrap().state.may_call() && must_verify(&index, "u"));
}

/// Its claim is deleted before our finalizer is taken off, and it goes the ordinary way.
#[test]
fn a_volume_that_keeps_our_finalizer_was_not_let_go() {
    let seen = |name: &str, phase: &str| -> Volume {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": "pv", "finalizers": [PROTECTION],
                         "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"persistentVolumeReclaimPolicy": "Delete", "claimRef": {"uid": "u"}},
            "status": {"phase": phase},
        }))
        .unwrap()
    };
    for (phase, is_suspect) in [("Available", true), ("Released", false)] {
        let index = with_claim();
        index.on_volume(&seen("pvc-u", "Available"));
        let let_go = |name| index.update("u", |it| it.let_go(&seen(name, "Available")));
        assert_eq!(["made-before", "pvc-u"].map(let_go), [Some(false), Some(true)]);
        index.on_event(InformerEvent::Delete(claim("u")));
        index.on_volume(&seen("pvc-u", phase));
        index.on_volume_deleted(&seen("pvc-u", phase));
        let is_suspected = index.known("u").is_some_and(|it| it.pv_gone().is_some());
        assert_eq!(is_suspected, is_suspect, "{phase}");
    }
}
