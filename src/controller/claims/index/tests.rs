mod nodes;
mod records;
mod returns;

use self::records::marked;
use serde_json::{Value, json};

use super::*;
use crate::{
    controller::{
        claims::{call_record::status, state::Next},
        events::EVENT_LASTS,
        provisioner::{Failure, NotSent, Outcome},
    },
    kube::{informer::InformerEvent, objects::Volume},
};

const DRIVER: &str = "d.example.com";

fn book() -> ClaimIndex {
    book_of(None)
}

fn book_of(node: Option<&str>) -> ClaimIndex {
    let node = node.map(str::to_owned);
    let identity = ProvisionerIdentity { driver: DRIVER.into(), in_tree: None, node };
    ClaimIndex::new(identity, |uid| Some(format!("pvc-{uid}")), |_| {})
}

/// A book of a process that works, and has listed everything since.
fn working() -> ClaimIndex {
    works(book())
}

fn works(book: ClaimIndex) -> ClaimIndex {
    book.begin_term();
    book.observe(InformerEvent::InitDone);
    book.claims_listed(Some(0));
    list_volumes(&book);
    book.listed();
    book
}

/// A PersistentVolume under the name that a provisioner of ours gives it now.
fn made_by_us(name: &str, claim_uid: &str) -> Volume {
    let mut volume = volume(name, claim_uid);
    let maker = ("pv.kubernetes.io/provisioned-by".to_owned(), DRIVER.to_owned());
    volume.metadata.annotations = Some([maker].into());
    volume
}

/// All PersistentVolumes are listed, and there are none.
fn list_volumes(book: &ClaimIndex) -> Vec<String> {
    book.volumes_restarted();
    book.volumes_listed()
}

/// What was in this doubt about the claim is settled.
fn looked_up(book: &ClaimIndex, uid: &str, verification: Verification) {
    book.looked_up(&ClaimSnapshot { verification, ..book.snapshot(uid).unwrap() });
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
        json!({"metadata": {"name": name}, "spec": {"claimRef": {"uid": claim_uid}}}),
    )
    .unwrap()
}

fn order(uid: &str) -> ProvisionRequest {
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

/// What a standby was shown may be older than the last work of the process before.
#[test]
fn a_new_leader_looks_every_claim_up_until_both_kinds_are_listed_anew() {
    let book = book();
    book.observe(InformerEvent::InitDone);
    book.observe(InformerEvent::Apply(claim("standby")));
    list_volumes(&book);
    book.volume_passes(&made_by_us("pvc-x", "x"));
    book.begin_term();
    assert_eq!(book.observe(InformerEvent::Apply(claim("late"))), ["late"]);
    let verification = |uid| book.snapshot(uid).unwrap().verification;
    assert_eq!(["standby", "late"].map(verification), [Verification::VolumeAndClaim; 2]);
    looked_up(&book, "standby", Verification::VolumeAndClaim);
    assert!(book.called("standby", &order("standby")), "it need not wait for the lists");
    assert_eq!(book.stands(InformerEvent::InitApply(claim("unseen"))), ["unseen"]);
    assert!(book.stands(InformerEvent::InitApply(claim("late"))).is_empty(), "it is known");
    book.observe(InformerEvent::Apply(claim("short")));
    book.observe(InformerEvent::Delete(claim("short")));
    assert!(book.stands(InformerEvent::InitApply(claim("short"))).is_empty());
    assert!(book.snapshot("short").is_none(), "the watch has shown it to go");
    book.claims_listed(Some(7));
    assert!(book.listed().is_empty(), "nobody has waited");
    let in_version = |uid: &str, version: &str| {
        claim_with(uid, |claim| claim["metadata"]["resourceVersion"] = json!(version))
    };
    book.observe(InformerEvent::Apply(in_version("old", "7")));
    book.observe(InformerEvent::Apply(in_version("born", "8")));
    assert_eq!(verification("born"), Verification::None);
    assert_eq!(
        ["late", "unseen", "old"].map(verification),
        [Verification::VolumeAndClaim; 3],
        "not under our eyes"
    );
}

/// The process before may have named its volumes otherwise, and no look-up finds those (seed 76119).
#[test]
fn where_names_are_not_known_to_be_the_usual_ones_claims_wait_for_the_list() {
    let seen: [&[Volume]; 3] =
        [&[], &[made_by_us("tank-x", "x"), made_by_us("pvc-y", "y")], &[volume("pvc-z", "z")]];
    for volumes in seen {
        let book = book();
        book.observe(InformerEvent::Apply(claim("u")));
        for volume in volumes {
            book.volume_passes(volume);
        }
        book.begin_term();
        assert_eq!(book.snapshot("u").unwrap().verification, Verification::Unlisted, "{volumes:?}");
        assert!(
            book.observe(InformerEvent::Apply(claim("v"))).is_empty(),
            "nobody looks at it yet"
        );
        book.claims_listed(Some(9));
        let mut waited = book.listed();
        waited.sort();
        assert_eq!(waited, ["u", "v"]);
        assert_eq!(book.snapshot("u").unwrap().verification, Verification::VolumeAndClaim);
    }
}

/// A working book that knows the claim `u`, seen as it was born.
fn with_claim() -> ClaimIndex {
    let book = working();
    assert_eq!(book.observe(InformerEvent::Apply(claim("u"))), ["u"]);
    book
}

fn background() -> Outcome {
    Outcome::Background(Failure::new("unknown"))
}

#[test]
fn claims_of_others_and_bound_ones_are_not_kept() {
    let book = book();
    let foreign = claim_with("f", |claim| claim["metadata"]["annotations"] = json!({}));
    for dropped in [foreign, bound("b")] {
        assert!(book.observe(InformerEvent::InitApply(dropped)).is_empty());
    }
    assert!(book.is_empty());
}

#[test]
fn a_claim_first_seen_in_a_list_is_looked_up_before_its_first_call() {
    let book = book();
    book.begin_term();
    book.observe(InformerEvent::InitApply(claim("listed")));
    book.observe(InformerEvent::InitDone);
    book.claims_listed(Some(0));
    book.observe(InformerEvent::Apply(claim("early")));
    book.listed();
    book.observe(InformerEvent::Apply(claim("born")));
    let verification = |uid| book.snapshot(uid).unwrap().verification;
    assert_eq!(verification("listed"), Verification::VolumeAndClaim);
    assert_eq!(verification("early"), Verification::VolumeAndClaim);
    assert_eq!(verification("born"), Verification::None);
    looked_up(&book, "listed", Verification::VolumeAndClaim);
    assert_eq!(verification("listed"), Verification::None);
}

#[test]
fn a_claim_that_was_there_before_we_worked_is_looked_up_whenever_it_becomes_ours() {
    let book = book();
    let unmarked =
        |uid: &str| claim_with(uid, |claim| claim["metadata"]["annotations"] = json!({}));
    book.observe(InformerEvent::Init);
    book.observe(InformerEvent::InitApply(unmarked("listed")));
    book.observe(InformerEvent::InitApply(unmarked("gone")));
    book.observe(InformerEvent::InitDone);
    book.observe(InformerEvent::Apply(unmarked("standby")));
    book.begin_term();
    book.claims_listed(Some(0));
    book.observe(InformerEvent::Apply(unmarked("early")));
    book.listed();
    book.observe(InformerEvent::Apply(unmarked("born")));
    for uid in ["listed", "standby", "early", "born"] {
        book.observe(InformerEvent::Apply(claim(uid)));
    }
    let verification = |uid| book.snapshot(uid).unwrap().verification;
    assert_eq!(["listed", "standby", "early"].map(verification), [Verification::VolumeAndClaim; 3]);
    assert_eq!(verification("born"), Verification::None);
    book.observe(InformerEvent::Delete(unmarked("gone")));
    assert!(book.0.inner.lock().stood.is_empty(), "nothing is kept of who is ours or gone");
}

/// Claims are listed before PersistentVolumes, each of which is compared with them.
#[test]
fn a_volume_that_passes_after_its_claim_was_listed_ends_it_whatever_its_name() {
    let book = book();
    book.begin_term();
    book.observe(InformerEvent::InitApply(claim("served")));
    book.observe(InformerEvent::InitApply(claim("free")));
    book.volumes_restarted();
    book.volume_passes(&volume("of-any-name", "served"));
    assert!(book.volumes_listed().is_empty());
    let may_call = |uid| book.snapshot(uid).unwrap().may_call;
    assert!(!may_call("served") && may_call("free"));
}

#[test]
fn a_name_without_the_whole_uid_is_always_looked_up() {
    let identity = ProvisionerIdentity { driver: DRIVER.into(), in_tree: None, node: None };
    let book = ClaimIndex::new(identity, |_| Some("pvc-cut".into()), |_| {});
    let book = works(book);
    book.observe(InformerEvent::Apply(claim("0a1b")));
    assert_eq!(book.snapshot("0a1b").unwrap().verification, Verification::Volume);
}

#[tokio::test]
async fn a_name_without_the_whole_uid_is_looked_up_before_each_attempt_but_of_an_open_call() {
    let identity = ProvisionerIdentity { driver: DRIVER.into(), in_tree: None, node: None };
    let book = ClaimIndex::new(identity, |_| Some("pvc-cut".into()), |_| {});
    let book = works(book);
    book.observe(InformerEvent::Apply(claim("0a1b")));
    let verification = || book.snapshot("0a1b").unwrap().verification;
    let attempt = |outcome: &Outcome| {
        looked_up(&book, "0a1b", verification());
        assert!(book.called("0a1b", &order("0a1b")));
        book.answered("0a1b", outcome);
    };
    looked_up(&book, "0a1b", verification());
    book.not_asked("0a1b", &NotSent::Failed(Failure::new("no secret")));
    assert_eq!(verification(), Verification::Volume, "another claim may have got it since");
    attempt(&Outcome::Final(Failure::new("no")));
    assert_eq!(verification(), Verification::Volume);
    attempt(&background());
    assert_eq!(verification(), Verification::None, "its volume is what that call makes");
}

#[tokio::test]
async fn a_bound_claim_is_let_go() {
    let book = with_claim();
    assert!(book.called("u", &order("u")));
    book.answered("u", &Outcome::Provisioned(Box::default()));
    assert!(book.is_saving("u"));
    book.saved("u");
    assert!(!book.snapshot("u").unwrap().may_call);
    assert!(book.observe(InformerEvent::Apply(bound("u"))).is_empty());
    assert!(book.is_empty());
}

#[tokio::test]
async fn an_open_call_is_followed_whatever_becomes_of_the_claim() {
    for news in [
        InformerEvent::Delete(claim("u")),
        InformerEvent::Apply(bound("u")),
        InformerEvent::Apply(claim_with("u", |claim| claim["metadata"]["annotations"] = json!({}))),
    ] {
        let book = with_claim();
        assert!(book.called("u", &order("u")));
        assert_eq!(book.answered("u", &background()), (Next::Poll, 1));
        assert_eq!(book.observe(news.clone()), ["u"], "{news:?}");
        let snapshot = book.snapshot("u").unwrap();
        assert_eq!(snapshot.demand, Demand::Withdrawn);
        assert!(snapshot.may_call && snapshot.order.is_some(), "it is asked for again, the same");
        book.called("u", &order("u"));
        book.answered("u", &Outcome::Provisioned(Box::default()));
        book.saved("u");
        assert!(book.is_empty(), "{news:?}");
    }
}

#[tokio::test]
async fn a_claim_that_vanished_between_two_lists_is_let_go_or_followed() {
    let book = with_claim();
    book.observe(InformerEvent::Apply(claim("open")));
    book.called("open", &order("open"));
    book.answered("open", &background());
    book.observe(InformerEvent::Init);
    assert_eq!(book.observe(InformerEvent::InitDone), ["open"]);
    assert_eq!(book.all(), ["open"]);
}

#[test]
fn a_claim_that_cannot_be_read_for_once_has_not_vanished() {
    let book = with_claim();
    book.observe(InformerEvent::Init);
    book.observe(InformerEvent::Unreadable {
        namespace: "ns".into(),
        name: "u".into(),
        uid: "u".into(),
    });
    assert!(book.observe(InformerEvent::InitDone).is_empty());
    assert_eq!(book.all(), ["u"]);
}

#[tokio::test]
async fn a_call_starts_once() {
    let book = with_claim();
    assert!(book.called("u", &order("u")));
    assert!(!book.called("u", &order("u")), "while one is in flight");
    book.answered("u", &Outcome::Final(Failure::new("no")));
    assert!(book.called("u", &order("u")), "after a failure");
    assert!(!book.called("unknown", &order("unknown")));
}

#[tokio::test]
async fn polls_are_counted_in_a_row() {
    let book = with_claim();
    let ask = |outcome: &Outcome| {
        book.called("u", &order("u"));
        book.answered("u", outcome).1
    };
    assert_eq!([ask(&background()), ask(&background())], [1, 2]);
    assert_eq!(ask(&Outcome::Final(Failure::new("no"))), 0);
    assert_eq!(ask(&background()), 1);
}

#[test]
fn a_volume_for_the_claim_ends_it_whatever_its_name() {
    let book = with_claim();
    book.volume_passes(&volume("made-by-another", "u"));
    assert!(!book.snapshot("u").unwrap().may_call);
}

#[test]
fn a_strangers_volume_under_the_claims_name_is_looked_into() {
    let book = with_claim();
    book.volume_passes(&volume("pvc-u", "stranger"));
    let snapshot = book.snapshot("u").unwrap();
    assert_eq!((snapshot.may_call, snapshot.verification), (true, Verification::Volume));
}

#[test]
fn when_its_volume_goes_a_claim_is_looked_into_before_it_gets_another() {
    let book = with_claim();
    book.volume_passes(&volume("pvc-u", "u"));
    assert_eq!(book.volume_gone(&volume("pvc-u", "u")), None, "nobody hurries");
    let snapshot = book.snapshot("u").unwrap();
    assert_eq!((snapshot.may_call, snapshot.verification), (true, Verification::VolumeAndClaim));
    assert_eq!(
        book.volume_gone(&volume("pvc-u", "stranger")),
        Some("u".into()),
        "the name is free again"
    );
    assert_eq!(book.volume_gone(&volume("other", "other")), None);
}

#[tokio::test]
async fn a_dead_worker_leaves_the_call_open() {
    let book = with_claim();
    book.called("u", &order("u"));
    book.interrupted("u");
    book.observe(InformerEvent::Delete(claim("u")));
    assert!(
        book.snapshot("u").is_some_and(|snapshot| snapshot.may_call && snapshot.order.is_some())
    );
}

#[tokio::test(start_paused = true)]
async fn the_same_news_is_told_once_while_its_event_lasts() {
    let book = with_claim();
    let tells = |what: &str| book.tells("u", what, Duration::ZERO);
    assert!(tells("class missing"));
    tokio::time::advance(EVENT_LASTS / 2).await;
    assert!(!tells("class missing"));
    tokio::time::advance(EVENT_LASTS / 2).await;
    assert!(tells("class missing"), "events do not last for ever");
    assert!(tells("class foreign"));
    assert!(!book.tells("gone", "anything", Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_told_once_it_has_stood_for_a_while() {
    let book = with_claim();
    let tells = |what: &str| book.tells("u", what, Duration::from_secs(5));
    assert!(!tells("class missing"));
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(!tells("class missing"));
    assert!(!tells("class foreign"), "something else, from now on");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(tells("class foreign"));
    assert!(!tells("class foreign"));
}

#[test]
fn claims_are_found_by_their_class() {
    let book = with_claim();
    assert_eq!(book.of_class("fast"), ["u"]);
    assert!(book.of_class("slow").is_empty());
}

#[test]
fn two_claims_that_share_a_name_do_not_take_it_from_each_other() {
    let identity = ProvisionerIdentity { driver: DRIVER.into(), in_tree: None, node: None };
    let book = ClaimIndex::new(identity, |_| Some("pvc-cut".into()), |_| {});
    book.observe(InformerEvent::Apply(claim("first")));
    book.observe(InformerEvent::Apply(claim("second")));
    book.observe(InformerEvent::Delete(claim("first")));
    assert_eq!(book.volume_gone(&volume("pvc-cut", "stranger")), Some("second".into()));
}

#[tokio::test]
async fn a_volume_seen_for_an_open_call_nobody_wants_lets_the_claim_go() {
    let book = with_claim();
    book.called("u", &order("u"));
    book.answered("u", &background());
    book.observe(InformerEvent::Delete(claim("u")));
    book.volume_passes(&volume("pvc-u", "u"));
    assert!(book.is_empty(), "nothing is left open");
}

#[tokio::test]
async fn a_claim_that_gets_a_second_volume_is_not_asked_for_by_the_first_order() {
    let book = with_claim();
    book.called("u", &order("u"));
    book.answered("u", &background());
    book.volume_passes(&volume("pvc-u", "u"));
    book.volume_gone(&volume("pvc-u", "u"));
    let snapshot = book.snapshot("u").unwrap();
    assert!(snapshot.may_call && snapshot.order.is_none(), "the open call was closed");
}

#[tokio::test]
async fn no_call_starts_while_anything_is_in_doubt_or_for_a_claim_that_is_deleted() {
    let book = with_claim();
    book.volume_passes(&volume("pvc-u", "stranger"));
    assert!(!book.called("u", &order("u")), "the name is taken since the plan was made");
    book.volume_passes(&volume("pvc-u", "u"));
    book.volume_gone(&volume("pvc-u", "u"));
    looked_up(&book, "u", Verification::Volume);
    assert_eq!(
        book.snapshot("u").unwrap().verification,
        Verification::VolumeAndClaim,
        "in verification since"
    );
    looked_up(&book, "u", Verification::VolumeAndClaim);
    book.observe(InformerEvent::Apply(claim_with("u", |claim| {
        claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    })));
    assert!(!book.called("u", &order("u")), "deleted since the plan was made");
}

#[test]
fn a_list_of_volumes_that_lacks_the_claims_own_brings_the_claim_back() {
    let book = with_claim();
    book.volume_passes(&volume("pvc-u", "u"));
    book.volumes_restarted();
    book.volume_passes(&volume("pvc-u", "u"));
    book.volumes_listed();
    assert!(!book.snapshot("u").unwrap().may_call, "it is there");
    book.volumes_restarted();
    book.volumes_listed();
    let snapshot = book.snapshot("u").unwrap();
    assert_eq!((snapshot.may_call, snapshot.verification), (true, Verification::VolumeAndClaim));
}

#[test]
fn a_strangers_volume_that_goes_leaves_a_claim_with_a_volume_alone() {
    let book = with_claim();
    book.volume_passes(&volume("other-name", "u"));
    book.volume_gone(&volume("pvc-u", "stranger"));
    assert!(!book.snapshot("u").unwrap().may_call);
}

#[tokio::test(start_paused = true)]
async fn the_census_counts_claims_by_where_they_stand_and_finds_the_oldest() {
    let book = with_claim();
    tokio::time::advance(Duration::from_secs(30)).await;
    for uid in ["v", "w"] {
        book.observe(InformerEvent::Apply(claim(uid)));
    }
    assert!(book.called("v", &order("v")));
    let expected =
        Census { waiting: 2, in_flight: 1, oldest: Duration::from_secs(30), ..Census::default() };
    assert_eq!(book.census(), expected);
    assert_eq!(book.waited("u"), Some(Duration::from_secs(30)));
    assert_eq!(book.waited("nobody"), None);

    book.answered("v", &background());
    // Another watch event is no first sight.
    book.observe(InformerEvent::Apply(claim("u")));
    book.observe(InformerEvent::Apply(bound("u")));
    assert_eq!(book.census(), Census { waiting: 1, background: 1, ..Census::default() });
    book.volume_passes(&volume("pvc-v", "v"));
    assert_eq!(book.census(), Census { waiting: 1, ..Census::default() }, "done is out of work");
}

#[test]
fn what_the_audit_queued_is_told_once() {
    let book = with_claim();
    assert!(!book.take_resynced("u"));
    book.resynced("u");
    assert!(book.take_resynced("u") && !book.take_resynced("u"));
    book.resynced("nobody");
    assert!(!book.take_resynced("nobody"));
}

#[tokio::test]
async fn a_volume_made_by_hand_closes_no_open_call() {
    for (state, name, kept) in
        [("open", "by-hand", true), ("open", "pvc-u", false), ("none", "by-hand", false)]
    {
        let book = with_claim();
        if state == "open" {
            assert!(book.called("u", &order("u")));
            book.answered("u", &background());
        }
        book.volume_passes(&volume(name, "u"));
        book.observe(InformerEvent::Apply(bound("u")));
        assert_eq!(book.snapshot("u").is_some(), kept, "{state} {name}");
    }
}

/// A working book that knows the claim `u`, and the UIDs it told to be closed.
fn with_closings() -> (ClaimIndex, Arc<Mutex<Vec<String>>>) {
    let closed: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&closed);
    let identity = ProvisionerIdentity { driver: DRIVER.into(), in_tree: None, node: None };
    let name = |uid: &str| Some(format!("pvc-{uid}"));
    let book = works(ClaimIndex::new(identity, name, move |uid| told.lock().push(uid.to_owned())));
    book.observe(InformerEvent::Apply(claim("u")));
    (book, closed)
}

/// What a volume is made from is needed until the volume is saved, or nobody wants it and no call
/// is open.
#[tokio::test(start_paused = true)]
async fn the_end_of_the_need_for_a_source_is_told() {
    type Steps<'a> = &'a [&'a dyn Fn(&ClaimIndex)];
    let saved = |book: &ClaimIndex| {
        book.answered("u", &Outcome::Provisioned(Box::default()));
        book.saved("u");
    };
    let gone = |book: &ClaimIndex| drop(book.observe(InformerEvent::Delete(claim("u"))));
    let refused = |book: &ClaimIndex| {
        book.answered("u", &Outcome::Final(Failure::new("no")));
    };
    let unknown = |book: &ClaimIndex| {
        book.answered("u", &background());
    };
    let table: [(Steps<'_>, bool); 8] = [
        (&[], false),
        (&[&saved], true),
        (&[&unknown], false),
        (&[&refused], false),
        (&[&refused, &gone], true),
        (&[&gone], false),
        (&[&unknown, &gone], false),
        (&[&gone, &refused], true),
    ];
    for (number, (steps, expected)) in table.into_iter().enumerate() {
        let (book, closed) = with_closings();
        assert!(book.called("u", &order("u")));
        for step in steps {
            step(&book);
        }
        assert_eq!(closed.lock().contains(&"u".to_owned()), expected, "row {number}");
    }
}

#[test]
fn a_claim_that_waits_needs_its_source_until_it_is_deleted_or_has_its_volume() {
    let terminating = claim_with("u", |claim| {
        claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    let ends: [&dyn Fn(&ClaimIndex); 4] = [
        &|book| drop(book.observe(InformerEvent::Apply(terminating.clone()))),
        &|book| drop(book.observe(InformerEvent::Apply(bound("u")))),
        &|book| drop(book.observe(InformerEvent::Delete(claim("u")))),
        &|book| drop(book.volume_passes(&volume("pvc-u", "u"))),
    ];
    for end in ends {
        let (book, closed) = with_closings();
        book.observe(InformerEvent::Apply(claim("u")));
        assert!(closed.lock().is_empty());
        end(&book);
        assert_eq!(*closed.lock(), ["u"]);
    }
}

/// A standby, or a process that begins, knows the call from its mark alone.
#[test]
fn a_marked_claim_needs_its_source_from_the_start_until_the_mark_is_taken_off() {
    let closed: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&closed);
    let identity = ProvisionerIdentity { driver: DRIVER.into(), in_tree: None, node: None };
    let name = |uid: &str| Some(format!("pvc-{uid}"));
    let book = ClaimIndex::new(identity, name, move |uid| told.lock().push(uid.to_owned()));
    let mut deleted = marked("u", DRIVER);
    deleted.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    book.observe(InformerEvent::InitApply(deleted.clone()));
    book.begin_term();
    book.observe(InformerEvent::Apply(deleted));
    assert!(closed.lock().is_empty());
    book.given_up("u");
    assert_eq!(*closed.lock(), ["u"]);
}
