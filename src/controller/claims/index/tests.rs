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
    let identity = Identity { driver: DRIVER.into(), in_tree: None, node };
    ClaimIndex::new(identity, |uid| Some(format!("pvc-{uid}")), |_| {})
}

/// A book of a process that works, and has listed everything since.
fn working() -> ClaimIndex {
    works(book())
}

fn works(book: ClaimIndex) -> ClaimIndex {
    book.begin_term();
    book.observe(InformerEvent::Complete);
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
fn looked_up(book: &ClaimIndex, uid: &str, doubt: Doubt) {
    book.looked_up(&Glance { doubt, ..book.glance(uid).unwrap() });
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

fn order(uid: &str) -> Order {
    Order {
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
    book.observe(InformerEvent::Complete);
    book.observe(InformerEvent::Applied(claim("standby")));
    list_volumes(&book);
    book.volume_passes(&made_by_us("pvc-x", "x"));
    book.begin_term();
    assert_eq!(book.observe(InformerEvent::Applied(claim("late"))), ["late"]);
    let doubt = |uid| book.glance(uid).unwrap().doubt;
    assert_eq!(["standby", "late"].map(doubt), [Doubt::VolumeAndClaim; 2]);
    looked_up(&book, "standby", Doubt::VolumeAndClaim);
    assert!(book.called("standby", &order("standby")), "it need not wait for the lists");
    assert_eq!(book.stands(InformerEvent::Listed(claim("unseen"))), ["unseen"]);
    assert!(book.stands(InformerEvent::Listed(claim("late"))).is_empty(), "it is known");
    book.observe(InformerEvent::Applied(claim("short")));
    book.observe(InformerEvent::Deleted(claim("short")));
    assert!(book.stands(InformerEvent::Listed(claim("short"))).is_empty());
    assert!(book.glance("short").is_none(), "the watch has shown it to go");
    book.claims_listed(Some(7));
    assert!(book.listed().is_empty(), "nobody has waited");
    let in_version = |uid: &str, version: &str| {
        claim_with(uid, |claim| claim["metadata"]["resourceVersion"] = json!(version))
    };
    book.observe(InformerEvent::Applied(in_version("old", "7")));
    book.observe(InformerEvent::Applied(in_version("born", "8")));
    assert_eq!(doubt("born"), Doubt::None);
    assert_eq!(
        ["late", "unseen", "old"].map(doubt),
        [Doubt::VolumeAndClaim; 3],
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
        book.observe(InformerEvent::Applied(claim("u")));
        for volume in volumes {
            book.volume_passes(volume);
        }
        book.begin_term();
        assert_eq!(book.glance("u").unwrap().doubt, Doubt::Unlisted, "{volumes:?}");
        assert!(
            book.observe(InformerEvent::Applied(claim("v"))).is_empty(),
            "nobody looks at it yet"
        );
        book.claims_listed(Some(9));
        let mut waited = book.listed();
        waited.sort();
        assert_eq!(waited, ["u", "v"]);
        assert_eq!(book.glance("u").unwrap().doubt, Doubt::VolumeAndClaim);
    }
}

/// A working book that knows the claim `u`, seen as it was born.
fn with_claim() -> ClaimIndex {
    let book = working();
    assert_eq!(book.observe(InformerEvent::Applied(claim("u"))), ["u"]);
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
        assert!(book.observe(InformerEvent::Listed(dropped)).is_empty());
    }
    assert!(book.is_empty());
}

#[test]
fn a_claim_first_seen_in_a_list_is_looked_up_before_its_first_call() {
    let book = book();
    book.begin_term();
    book.observe(InformerEvent::Listed(claim("listed")));
    book.observe(InformerEvent::Complete);
    book.claims_listed(Some(0));
    book.observe(InformerEvent::Applied(claim("early")));
    book.listed();
    book.observe(InformerEvent::Applied(claim("born")));
    let doubt = |uid| book.glance(uid).unwrap().doubt;
    assert_eq!(doubt("listed"), Doubt::VolumeAndClaim);
    assert_eq!(doubt("early"), Doubt::VolumeAndClaim);
    assert_eq!(doubt("born"), Doubt::None);
    looked_up(&book, "listed", Doubt::VolumeAndClaim);
    assert_eq!(doubt("listed"), Doubt::None);
}

#[test]
fn a_claim_that_was_there_before_we_worked_is_looked_up_whenever_it_becomes_ours() {
    let book = book();
    let unmarked =
        |uid: &str| claim_with(uid, |claim| claim["metadata"]["annotations"] = json!({}));
    book.observe(InformerEvent::Restarted);
    book.observe(InformerEvent::Listed(unmarked("listed")));
    book.observe(InformerEvent::Listed(unmarked("gone")));
    book.observe(InformerEvent::Complete);
    book.observe(InformerEvent::Applied(unmarked("standby")));
    book.begin_term();
    book.claims_listed(Some(0));
    book.observe(InformerEvent::Applied(unmarked("early")));
    book.listed();
    book.observe(InformerEvent::Applied(unmarked("born")));
    for uid in ["listed", "standby", "early", "born"] {
        book.observe(InformerEvent::Applied(claim(uid)));
    }
    let doubt = |uid| book.glance(uid).unwrap().doubt;
    assert_eq!(["listed", "standby", "early"].map(doubt), [Doubt::VolumeAndClaim; 3]);
    assert_eq!(doubt("born"), Doubt::None);
    book.observe(InformerEvent::Deleted(unmarked("gone")));
    assert!(book.0.inner.lock().stood.is_empty(), "nothing is kept of who is ours or gone");
}

/// Claims are listed before PersistentVolumes, each of which is compared with them.
#[test]
fn a_volume_that_passes_after_its_claim_was_listed_ends_it_whatever_its_name() {
    let book = book();
    book.begin_term();
    book.observe(InformerEvent::Listed(claim("served")));
    book.observe(InformerEvent::Listed(claim("free")));
    book.volumes_restarted();
    book.volume_passes(&volume("of-any-name", "served"));
    assert!(book.volumes_listed().is_empty());
    let may_call = |uid| book.glance(uid).unwrap().may_call;
    assert!(!may_call("served") && may_call("free"));
}

#[test]
fn a_name_without_the_whole_uid_is_always_looked_up() {
    let identity = Identity { driver: DRIVER.into(), in_tree: None, node: None };
    let book = ClaimIndex::new(identity, |_| Some("pvc-cut".into()), |_| {});
    let book = works(book);
    book.observe(InformerEvent::Applied(claim("0a1b")));
    assert_eq!(book.glance("0a1b").unwrap().doubt, Doubt::Volume);
}

#[tokio::test]
async fn a_name_without_the_whole_uid_is_looked_up_before_each_attempt_but_of_an_open_call() {
    let identity = Identity { driver: DRIVER.into(), in_tree: None, node: None };
    let book = ClaimIndex::new(identity, |_| Some("pvc-cut".into()), |_| {});
    let book = works(book);
    book.observe(InformerEvent::Applied(claim("0a1b")));
    let doubt = || book.glance("0a1b").unwrap().doubt;
    let attempt = |outcome: &Outcome| {
        looked_up(&book, "0a1b", doubt());
        assert!(book.called("0a1b", &order("0a1b")));
        book.answered("0a1b", outcome);
    };
    looked_up(&book, "0a1b", doubt());
    book.not_asked("0a1b", &NotSent::Failed(Failure::new("no secret")));
    assert_eq!(doubt(), Doubt::Volume, "another claim may have got it since");
    attempt(&Outcome::Final(Failure::new("no")));
    assert_eq!(doubt(), Doubt::Volume);
    attempt(&background());
    assert_eq!(doubt(), Doubt::None, "its volume is what that call makes");
}

#[tokio::test]
async fn a_bound_claim_is_let_go() {
    let book = with_claim();
    assert!(book.called("u", &order("u")));
    book.answered("u", &Outcome::Provisioned(Box::default()));
    assert!(book.is_saving("u"));
    book.saved("u");
    assert!(!book.glance("u").unwrap().may_call);
    assert!(book.observe(InformerEvent::Applied(bound("u"))).is_empty());
    assert!(book.is_empty());
}

#[tokio::test]
async fn an_open_call_is_followed_whatever_becomes_of_the_claim() {
    for news in [
        InformerEvent::Deleted(claim("u")),
        InformerEvent::Applied(bound("u")),
        InformerEvent::Applied(claim_with("u", |claim| {
            claim["metadata"]["annotations"] = json!({})
        })),
    ] {
        let book = with_claim();
        assert!(book.called("u", &order("u")));
        assert_eq!(book.answered("u", &background()), (Next::Poll, 1));
        assert_eq!(book.observe(news.clone()), ["u"], "{news:?}");
        let glance = book.glance("u").unwrap();
        assert_eq!(glance.demand, Demand::Withdrawn);
        assert!(glance.may_call && glance.order.is_some(), "it is asked for again, the same");
        book.called("u", &order("u"));
        book.answered("u", &Outcome::Provisioned(Box::default()));
        book.saved("u");
        assert!(book.is_empty(), "{news:?}");
    }
}

#[tokio::test]
async fn a_claim_that_vanished_between_two_lists_is_let_go_or_followed() {
    let book = with_claim();
    book.observe(InformerEvent::Applied(claim("open")));
    book.called("open", &order("open"));
    book.answered("open", &background());
    book.observe(InformerEvent::Restarted);
    assert_eq!(book.observe(InformerEvent::Complete), ["open"]);
    assert_eq!(book.all(), ["open"]);
}

#[test]
fn a_claim_that_cannot_be_read_for_once_has_not_vanished() {
    let book = with_claim();
    book.observe(InformerEvent::Restarted);
    book.observe(InformerEvent::Unreadable {
        namespace: "ns".into(),
        name: "u".into(),
        uid: "u".into(),
    });
    assert!(book.observe(InformerEvent::Complete).is_empty());
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
    assert!(!book.glance("u").unwrap().may_call);
}

#[test]
fn a_strangers_volume_under_the_claims_name_is_looked_into() {
    let book = with_claim();
    book.volume_passes(&volume("pvc-u", "stranger"));
    let glance = book.glance("u").unwrap();
    assert_eq!((glance.may_call, glance.doubt), (true, Doubt::Volume));
}

#[test]
fn when_its_volume_goes_a_claim_is_looked_into_before_it_gets_another() {
    let book = with_claim();
    book.volume_passes(&volume("pvc-u", "u"));
    assert_eq!(book.volume_gone(&volume("pvc-u", "u")), None, "nobody hurries");
    let glance = book.glance("u").unwrap();
    assert_eq!((glance.may_call, glance.doubt), (true, Doubt::VolumeAndClaim));
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
    book.observe(InformerEvent::Deleted(claim("u")));
    assert!(book.glance("u").is_some_and(|glance| glance.may_call && glance.order.is_some()));
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
    let identity = Identity { driver: DRIVER.into(), in_tree: None, node: None };
    let book = ClaimIndex::new(identity, |_| Some("pvc-cut".into()), |_| {});
    book.observe(InformerEvent::Applied(claim("first")));
    book.observe(InformerEvent::Applied(claim("second")));
    book.observe(InformerEvent::Deleted(claim("first")));
    assert_eq!(book.volume_gone(&volume("pvc-cut", "stranger")), Some("second".into()));
}

#[tokio::test]
async fn a_volume_seen_for_an_open_call_nobody_wants_lets_the_claim_go() {
    let book = with_claim();
    book.called("u", &order("u"));
    book.answered("u", &background());
    book.observe(InformerEvent::Deleted(claim("u")));
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
    let glance = book.glance("u").unwrap();
    assert!(glance.may_call && glance.order.is_none(), "the open call was closed");
}

#[tokio::test]
async fn no_call_starts_while_anything_is_in_doubt_or_for_a_claim_that_is_deleted() {
    let book = with_claim();
    book.volume_passes(&volume("pvc-u", "stranger"));
    assert!(!book.called("u", &order("u")), "the name is taken since the plan was made");
    book.volume_passes(&volume("pvc-u", "u"));
    book.volume_gone(&volume("pvc-u", "u"));
    looked_up(&book, "u", Doubt::Volume);
    assert_eq!(book.glance("u").unwrap().doubt, Doubt::VolumeAndClaim, "in doubt since");
    looked_up(&book, "u", Doubt::VolumeAndClaim);
    book.observe(InformerEvent::Applied(claim_with("u", |claim| {
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
    assert!(!book.glance("u").unwrap().may_call, "it is there");
    book.volumes_restarted();
    book.volumes_listed();
    let glance = book.glance("u").unwrap();
    assert_eq!((glance.may_call, glance.doubt), (true, Doubt::VolumeAndClaim));
}

#[test]
fn a_strangers_volume_that_goes_leaves_a_claim_with_a_volume_alone() {
    let book = with_claim();
    book.volume_passes(&volume("other-name", "u"));
    book.volume_gone(&volume("pvc-u", "stranger"));
    assert!(!book.glance("u").unwrap().may_call);
}

#[tokio::test(start_paused = true)]
async fn the_census_counts_claims_by_where_they_stand_and_finds_the_oldest() {
    let book = with_claim();
    tokio::time::advance(Duration::from_secs(30)).await;
    for uid in ["v", "w"] {
        book.observe(InformerEvent::Applied(claim(uid)));
    }
    assert!(book.called("v", &order("v")));
    let expected =
        Census { waiting: 2, in_flight: 1, oldest: Duration::from_secs(30), ..Census::default() };
    assert_eq!(book.census(), expected);
    assert_eq!(book.waited("u"), Some(Duration::from_secs(30)));
    assert_eq!(book.waited("nobody"), None);

    book.answered("v", &background());
    // Another watch event is no first sight.
    book.observe(InformerEvent::Applied(claim("u")));
    book.observe(InformerEvent::Applied(bound("u")));
    assert_eq!(book.census(), Census { waiting: 1, background: 1, ..Census::default() });
    book.volume_passes(&volume("pvc-v", "v"));
    assert_eq!(book.census(), Census { waiting: 1, ..Census::default() }, "done is out of work");
}

#[test]
fn what_the_audit_queued_is_told_once() {
    let book = with_claim();
    assert!(!book.take_audited("u"));
    book.audited("u");
    assert!(book.take_audited("u") && !book.take_audited("u"));
    book.audited("nobody");
    assert!(!book.take_audited("nobody"));
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
        book.observe(InformerEvent::Applied(bound("u")));
        assert_eq!(book.glance("u").is_some(), kept, "{state} {name}");
    }
}

/// A working book that knows the claim `u`, and the UIDs it told to be closed.
fn with_closings() -> (ClaimIndex, Arc<Mutex<Vec<String>>>) {
    let closed: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&closed);
    let identity = Identity { driver: DRIVER.into(), in_tree: None, node: None };
    let name = |uid: &str| Some(format!("pvc-{uid}"));
    let book = works(ClaimIndex::new(identity, name, move |uid| told.lock().push(uid.to_owned())));
    book.observe(InformerEvent::Applied(claim("u")));
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
    let gone = |book: &ClaimIndex| drop(book.observe(InformerEvent::Deleted(claim("u"))));
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
        &|book| drop(book.observe(InformerEvent::Applied(terminating.clone()))),
        &|book| drop(book.observe(InformerEvent::Applied(bound("u")))),
        &|book| drop(book.observe(InformerEvent::Deleted(claim("u")))),
        &|book| drop(book.volume_passes(&volume("pvc-u", "u"))),
    ];
    for end in ends {
        let (book, closed) = with_closings();
        book.observe(InformerEvent::Applied(claim("u")));
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
    let identity = Identity { driver: DRIVER.into(), in_tree: None, node: None };
    let name = |uid: &str| Some(format!("pvc-{uid}"));
    let book = ClaimIndex::new(identity, name, move |uid| told.lock().push(uid.to_owned()));
    let mut deleted = marked("u", DRIVER);
    deleted.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    book.observe(InformerEvent::Listed(deleted.clone()));
    book.begin_term();
    book.observe(InformerEvent::Applied(deleted));
    assert!(closed.lock().is_empty());
    book.given_up("u");
    assert_eq!(*closed.lock(), ["u"]);
}
