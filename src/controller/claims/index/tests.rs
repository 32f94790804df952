mod nodes;
mod overview;
mod records;
mod returns;
mod sources;

use self::records::with_record;
use serde_json::{Value, json};

use tokio::time::{Duration, Instant};

use super::*;
use crate::{
    controller::{
        claims::state::{Demand, Transition},
        events::EVENT_LASTS,
        provisioner::{Failure, Next, Outcome, ProvisionRequest},
    },
    flags::VolumeNaming,
    kube::{
        InformerEvent, Listed,
        informer::hash,
        objects::{CsiSource, Volume},
    },
};

const DRIVER: &str = "d.example.com";

fn empty_index() -> ClaimIndex {
    index_of_node(None)
}

fn index_of_node(node: Option<&str>) -> ClaimIndex {
    let node = node.map(str::to_owned);
    let identity = ProvisionerIdentity { node, ..ProvisionerIdentity::of_driver(DRIVER) };
    ClaimIndex::new(identity, |_| {})
}

/// An index whose volumes all get the name `pvc-`.
fn index_of_cut_names() -> ClaimIndex {
    let naming = VolumeNaming { uuid_length: 0, ..VolumeNaming::default() };
    ClaimIndex::new(
        ProvisionerIdentity { naming, ..ProvisionerIdentity::of_driver(DRIVER) },
        |_| {},
    )
}

/// The index of a leader that has listed everything since its term began.
fn leading_index() -> ClaimIndex {
    lead(empty_index())
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

#[test]
fn a_listed_claim_is_verified_before_its_first_call() {
    let index = empty_index();
    InformerEvent::list(vec![claim("listed")]).for_each(|event| drop(index.on_event(event)));
    index.on_event(InformerEvent::Apply(claim("early")));
    index.both_listed();
    index.on_event(InformerEvent::Apply(claim("new")));
    assert_eq!(["listed", "early", "new"].map(|uid| must_verify(&index, uid)), [true, true, false]);
    set_verified(&index, "listed");
    assert!(!must_verify(&index, "listed"));
}

#[test]
fn a_claim_from_before_the_term_is_verified_when_it_becomes_ours() {
    let index = empty_index();
    let unassigned =
        |uid: &str| claim_with(uid, |claim| claim["metadata"]["annotations"] = json!({}));
    let listed = InformerEvent::list(vec![unassigned("listed"), unassigned("gone")]);
    listed.for_each(|event| drop(index.on_event(event)));
    index.on_event(InformerEvent::Apply(unassigned("early")));
    index.both_listed();
    index.on_event(InformerEvent::Apply(unassigned("new")));
    for uid in ["listed", "early", "new"] {
        index.on_event(InformerEvent::Apply(claim(uid)));
    }
    assert_eq!(["listed", "early", "new"].map(|uid| must_verify(&index, uid)), [true, true, false]);
    index.on_event(InformerEvent::Delete(unassigned("gone")));
    assert!(
        index.0.inner.lock().others.is_empty(),
        "claims that are ours or gone are not kept there"
    );
}

/// Claims are listed before PersistentVolumes, each of which is compared with them.
#[test]
fn a_volume_of_any_name_seen_after_its_claim_was_listed_makes_it_done() {
    let index = empty_index();
    index.on_event(InformerEvent::InitApply(claim("served")));
    index.on_event(InformerEvent::InitApply(claim("free")));
    let pv = volume("of-any-name", "served");
    index.on_volume(&pv);
    assert!(index.on_volumes_listed(&Listed::of(&[pv])).is_empty());
    let may_call = |uid| index.known(uid).unwrap().state.may_call();
    assert!(!may_call("served") && may_call("free"));
}

#[test]
fn a_name_without_the_whole_uid_is_always_looked_up() {
    let index = lead(index_of_cut_names());
    index.on_event(InformerEvent::Apply(claim("0a1b")));
    assert!(must_verify(&index, "0a1b"));
}

#[tokio::test]
async fn a_name_without_the_whole_uid_is_looked_up_before_each_new_call() {
    let index = lead(index_of_cut_names());
    index.on_event(InformerEvent::Apply(claim("0a1b")));
    let must_verify = || must_verify(&index, "0a1b");
    let attempt = |outcome: &Outcome| {
        set_verified(&index, "0a1b");
        assert!(index.start_call("0a1b", &request("0a1b")));
        index.on_outcome("0a1b", outcome);
    };
    set_verified(&index, "0a1b");
    index.on_outcome("0a1b", &Outcome::NotPrepared(Failure::new("no secret").into()));
    assert!(must_verify(), "another claim may have got it since");
    attempt(&Outcome::Refused(Failure::new("no"), Next::Retry));
    assert!(must_verify());
    attempt(&background());
    assert!(!must_verify(), "its volume is what that call makes");
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

#[tokio::test]
async fn a_claim_missing_from_a_relist_is_removed_or_followed() {
    let index = with_claim();
    index.on_event(InformerEvent::Apply(claim("open")));
    index.start_call("open", &request("open"));
    index.on_outcome("open", &background());
    let gone = index.on_event(InformerEvent::InitDone(Listed::default()));
    assert_eq!(gone, ["open"].map(Key::from));
    assert_eq!(index.uids(|_| true), ["open"].map(Key::from));
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
async fn a_call_starts_once() {
    let index = with_claim();
    assert!(index.start_call("u", &request("u")));
    assert!(!index.start_call("u", &request("u")), "while one is in flight");
    index.on_outcome("u", &Outcome::Refused(Failure::new("no"), Next::Retry));
    assert!(index.start_call("u", &request("u")), "after a failure");
    assert!(!index.start_call("unknown", &request("unknown")));
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

#[test]
fn another_claims_volume_under_the_claims_name_requires_verification() {
    let index = with_claim();
    index.on_volume(&volume("pvc-u", "stranger"));
    let snapshot = index.known("u").unwrap();
    assert!(snapshot.state.may_call() && snapshot.must_verify());
}

#[test]
fn a_claim_whose_volume_is_gone_is_verified_before_it_gets_another() {
    let index = with_claim();
    index.on_volume(&volume("pvc-u", "u"));
    assert_eq!(index.on_volume_deleted(&volume("pvc-u", "u")), None, "it is not queued");
    let snapshot = index.known("u").unwrap();
    assert!(snapshot.state.may_call() && snapshot.must_verify());
    assert_eq!(
        index.on_volume_deleted(&volume("pvc-u", "stranger")),
        Some("u".into()),
        "the name is free again"
    );
    assert_eq!(index.on_volume_deleted(&volume("other", "other")), None);
}

#[tokio::test]
async fn after_a_worker_panic_the_call_is_open() {
    let index = with_claim();
    index.start_call("u", &request("u"));
    index.update("u", |it| it.advance(Transition::Interrupted));
    index.on_event(InformerEvent::Delete(claim("u")));
    assert!(
        index
            .known("u")
            .is_some_and(|snapshot| snapshot.state.may_call() && snapshot.request.is_some())
    );
}

#[tokio::test(start_paused = true)]
async fn the_same_obstacle_is_reported_once_while_its_event_lasts() {
    let index = with_claim();
    let is_due = |what: &str| index.report("u", Topic::Blocked(what, Duration::ZERO));
    assert!(is_due("class missing"));
    tokio::time::advance(EVENT_LASTS / 2).await;
    assert!(!is_due("class missing"));
    tokio::time::advance(EVENT_LASTS / 2).await;
    assert!(is_due("class missing"), "events do not last for ever");
    assert!(is_due("class foreign"));
    assert!(!index.report("gone", Topic::Blocked("anything", Duration::ZERO)));
}

#[tokio::test(start_paused = true)]
async fn an_obstacle_that_may_pass_is_reported_after_a_while() {
    let index = with_claim();
    let is_due = |what: &str| index.report("u", Topic::Blocked(what, Duration::from_secs(5)));
    assert!(!is_due("class missing"));
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(!is_due("class missing"));
    assert!(!is_due("class foreign"), "something else, from now on");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(is_due("class foreign"));
    assert!(!is_due("class foreign"));
}

#[test]
fn claims_are_found_by_their_class() {
    let index = with_claim();
    let of_class = |class| {
        index.uids(|known| crate::controller::ownership::class_of_claim(&known.claim) == class)
    };
    assert_eq!(of_class("fast"), ["u"].map(Key::from));
    assert!(of_class("slow").is_empty());
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
async fn a_volume_for_a_withdrawn_open_call_removes_the_claim_from_the_index() {
    let index = with_claim();
    index.start_call("u", &request("u"));
    index.on_outcome("u", &background());
    index.on_event(InformerEvent::Delete(claim("u")));
    index.on_volume(&provisioned_pv("pvc-u", "u"));
    assert!(index.is_empty(), "nothing is left open");
}

#[tokio::test]
async fn a_second_volume_of_a_claim_is_made_with_a_new_request() {
    let index = with_claim();
    index.start_call("u", &request("u"));
    index.on_outcome("u", &background());
    index.on_volume(&volume("pvc-u", "u"));
    index.on_volume_deleted(&volume("pvc-u", "u"));
    let snapshot = index.known("u").unwrap();
    assert!(snapshot.state.may_call() && snapshot.request.is_none(), "the open call was closed");
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

#[test]
fn a_claim_whose_volume_is_missing_from_a_list_may_get_another() {
    let index = with_claim();
    index.on_volume(&volume("pvc-u", "u"));
    index.on_volumes_listed(&Listed::of(&[volume("pvc-u", "u")]));
    assert!(!index.known("u").unwrap().state.may_call(), "it is there");
    index.on_volumes_listed(&Listed::default());
    let snapshot = index.known("u").unwrap();
    assert!(snapshot.state.may_call() && snapshot.must_verify());
}

/// Another's PersistentVolume under the name may be gone, and its deletion missed.
#[test]
fn a_claim_whose_name_was_taken_is_queued_by_the_next_list() {
    let index = with_claim();
    index.on_volume(&volume("pvc-u", "stranger"));
    assert!(index.on_volumes_listed(&Listed::default()).is_empty(), "no live read found it");
    index.update("u", Entry::await_pv_gone);
    assert_eq!(index.on_volumes_listed(&Listed::default()), ["u"].map(Key::from));
    assert!(index.on_volumes_listed(&Listed::default()).is_empty(), "once");
}

/// Once the name is free, nothing is awaited any more: the claim's own PersistentVolume may be deleted like any.
#[test]
fn a_claim_whose_name_was_freed_waits_for_no_deletion() {
    let index = with_claim();
    index.update("u", Entry::await_pv_gone);
    assert_eq!(index.on_volume_deleted(&volume("pvc-u", "stranger")), Some(Key::from("u")));
    index.on_volume(&volume("pvc-u", "u"));
    assert_eq!(index.on_volume_deleted(&volume("pvc-u", "u")), None);
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

fn counted(by_state: &[(&'static str, usize)]) -> Census {
    let mut census = Census::default();
    census.by_state.extend(by_state.iter().copied());
    census
}

#[tokio::test(start_paused = true)]
async fn the_census_counts_claims_by_state_and_finds_the_oldest() {
    let index = with_claim();
    tokio::time::advance(Duration::from_secs(30)).await;
    for uid in ["v", "w"] {
        index.on_event(InformerEvent::Apply(claim(uid)));
    }
    assert!(index.start_call("v", &request("v")));
    let expected =
        Census { oldest: Duration::from_secs(30), ..counted(&[("waiting", 2), ("in_flight", 1)]) };
    assert_eq!(index.census(), expected);
    assert_eq!(index.known("u").unwrap().age(), Duration::from_secs(30));
    assert!(index.known("nobody").is_none());

    index.on_outcome("v", &background());
    // Another event does not reset the age.
    index.on_event(InformerEvent::Apply(claim("u")));
    index.on_event(InformerEvent::Apply(bound("u")));
    assert_eq!(index.census(), counted(&[("waiting", 1), ("background", 1)]));
    index.on_volume(&volume("pvc-v", "v"));
    assert_eq!(index.census(), counted(&[("waiting", 1)]), "done is out of work");
}

#[tokio::test(start_paused = true)]
async fn the_census_counts_claims_that_wait_too_long_by_class() {
    let index = with_claim();
    tokio::time::advance(Census::OVERDUE_AFTER).await;
    assert!(index.census().overdue.is_empty());
    tokio::time::advance(Duration::from_secs(1)).await;
    index.on_event(InformerEvent::Apply(claim("v")));
    let class = claim("u").spec.storage_class_name.unwrap_or_default();
    assert_eq!(index.census().overdue, [(class.into(), 1)].into());

    index.on_event(InformerEvent::Apply(bound("u")));
    assert!(index.census().overdue.is_empty(), "it has its volume");
}

#[tokio::test]
async fn a_volume_made_by_hand_closes_an_open_call_only_under_its_name_and_with_a_report() {
    for (state, name, kept, reported) in [
        ("open", "by-hand", true, false),
        ("open", "pvc-u", false, true),
        ("none", "by-hand", false, false),
    ] {
        let index = with_claim();
        if state == "open" {
            assert!(index.start_call("u", &request("u")));
            index.on_outcome("u", &background());
        }
        index.on_volume(&volume(name, "u"));
        index.on_event(InformerEvent::Apply(bound("u")));
        assert_eq!(index.report("u", Topic::Superseded), reported, "{state} {name}");
        assert_eq!(index.known("u").is_some(), kept, "{state} {name}");
    }
}
