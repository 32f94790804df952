use serde_json::{Value, json};

use super::*;

const DRIVER: &str = "driver";

fn identity() -> ProvisionerIdentity {
    ProvisionerIdentity::of_driver(DRIVER)
}

fn claim(uid: &str, volume: &str) -> Claim {
    serde_json::from_value(json!({
        "metadata": {"name": uid, "namespace": "shop", "uid": uid, "annotations": {
            "volume.kubernetes.io/storage-provisioner": DRIVER}},
        "spec": {"storageClassName": "fast", "volumeName": volume},
    }))
    .unwrap()
}

fn volume(name: &str, claim: &str, change: &Value) -> Volume {
    let mut volume = json!({
        "metadata": {"name": name, "uid": name, "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}},
        "spec": {"claimRef": {"uid": claim}, "csi": {"driver": DRIVER, "volumeHandle": name},
            "persistentVolumeReclaimPolicy": "Delete"},
        "status": {"phase": "Bound"},
    });
    for (key, value) in change.as_object().unwrap() {
        volume[key] = value.clone();
    }
    serde_json::from_value(volume).unwrap()
}

fn released(name: &str) -> Volume {
    volume(name, "", &json!({"status": {"phase": "Released"}}))
}

fn plan(volume: &Volume) -> DeletionPlan {
    DeletionPlan::of(volume, |_| Ok(()))
}

struct Fixture {
    tracker: Tracker,
    now: Instant,
}

impl Fixture {
    fn new() -> Self {
        Self { tracker: Tracker::default(), now: Instant::now() }
    }

    fn claim(&mut self, uid: &str, volume: &str) -> bool {
        self.tracker.claim_applied(&identity(), claim(uid, volume), self.now)
    }

    fn volume(&mut self, volume: &Volume) -> Option<String> {
        self.tracker.volume_applied(volume, plan(volume), self.now)
    }

    fn refuse(&mut self, uid: &str) {
        let task = self.tracker.task(uid).unwrap();
        let expectation = Expectation::Refuse("no class".to_owned(), None);
        self.tracker.expect(&task.claim, Arc::new(expectation));
    }
}

#[tokio::test(start_paused = true)]
async fn only_claims_of_this_driver_without_a_volume_are_kept() {
    let mut fixture = Fixture::new();
    assert!(!fixture.claim("bound", "pv"));
    let mut foreign = claim("foreign", "");
    foreign.metadata.annotations = std::collections::BTreeMap::default();
    assert!(!fixture.tracker.claim_applied(&identity(), foreign, fixture.now));
    assert!(fixture.claim("new", ""));
    assert_eq!(fixture.tracker.report().waiting_claims, 1);
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_found_by_its_own_event_or_by_the_claims() {
    let mut fixture = Fixture::new();
    fixture.claim("a", "");
    fixture.claim("b", "");
    assert_eq!(fixture.volume(&volume("pvc-a", "a", &json!({}))).as_deref(), Some("a"));
    assert!(fixture.claim("b", "pvc-b"));
    for (uid, name) in [("a", "pvc-a"), ("b", "pvc-b")] {
        assert_eq!(fixture.tracker.task(uid).unwrap().volume.as_deref(), Some(name));
    }
    assert_eq!(fixture.volume(&volume("pvc-x", "x", &json!({}))), None);
}

#[tokio::test(start_paused = true)]
async fn what_was_expected_before_the_volume_appeared_counts() {
    let mut fixture = Fixture::new();
    fixture.claim("a", "");
    fixture.refuse("a");
    assert!(fixture.claim("a", ""), "the claim has changed");
    assert!(fixture.tracker.task("a").unwrap().expectation.is_none());
    fixture.refuse("a");
    fixture.volume(&volume("pvc-a", "a", &json!({})));
    fixture.claim("a", "");
    assert!(fixture.tracker.task("a").unwrap().expectation.is_some());
    let earlier = Arc::new(claim("a", ""));
    fixture.tracker.expect(&earlier, Arc::new(Expectation::Unknown(String::new())));
    let expectation = fixture.tracker.task("a").unwrap().expectation.unwrap();
    assert!(matches!(*expectation, Expectation::Refuse(..)), "it is of another version");
}

#[tokio::test(start_paused = true)]
async fn a_changed_class_makes_claims_new_but_not_those_with_a_volume() {
    let mut fixture = Fixture::new();
    for uid in ["a", "b"] {
        fixture.claim(uid, "");
        fixture.refuse(uid);
    }
    fixture.claim("b", "pvc-b");
    assert_eq!(fixture.tracker.class_changed("slow", true), [""; 0]);
    assert_eq!(fixture.tracker.class_changed("fast", true), ["a", "b"]);
    let task = |uid| fixture.tracker.task(uid).unwrap();
    assert!(task("a").expectation.is_none() && task("a").class_changed);
    assert!(task("b").expectation.is_some() && task("b").class_changed);
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_compared_once() {
    let mut fixture = Fixture::new();
    fixture.claim("a", "");
    assert!(fixture.tracker.finish("a"));
    assert!(!fixture.tracker.finish("a"));
    assert!(fixture.tracker.task("a").is_none());
    assert!(!fixture.claim("a", ""), "an event from before its volume");
    assert!(!fixture.claim("a", "pvc-a"));
    assert_eq!(fixture.tracker.report().waiting_claims, 0);
    assert!(!fixture.claim("a", "pvc-a"));
}

#[tokio::test(start_paused = true)]
async fn a_compared_claim_is_kept_only_until_it_is_bound() {
    let mut fixture = Fixture::new();
    for uid in ["bound-first", "compared-first"] {
        fixture.claim(uid, "");
    }
    fixture.claim("bound-first", "pvc-a");
    assert!(fixture.tracker.finish("bound-first"));
    assert!(fixture.tracker.finish("compared-first"));
    assert_eq!(fixture.tracker.kept().0, 1);
    fixture.claim("compared-first", "pvc-b");
    assert_eq!(fixture.tracker.kept().0, 0);
}

#[tokio::test(start_paused = true)]
async fn claims_are_kept_for_an_hour_and_deleted_ones_for_a_minute() {
    let mut fixture = Fixture::new();
    for uid in ["kept", "deleted", "served", "unknown"] {
        fixture.claim(uid, "");
    }
    for uid in ["kept", "deleted", "served"] {
        fixture.refuse(uid);
    }
    fixture.tracker.finish("served");
    fixture.tracker.claim_deleted("deleted", fixture.now);
    assert_eq!(fixture.tracker.sweep(fixture.now + GONE_FOR), []);
    assert!(fixture.tracker.task("deleted").is_none());
    assert!(fixture.tracker.task("kept").is_some());
    let results = fixture.tracker.sweep(fixture.now + KEPT_FOR);
    let results: Vec<_> =
        results.iter().map(|(name, it)| (&**name, it.subject, it.agreement)).collect();
    let name = "PersistentVolumeClaim shop/kept";
    assert_eq!(results, [(name, Subject::Unserved, Agreement::Same)]);
    assert!(fixture.tracker.task("kept").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_missing_from_a_new_list_was_deleted() {
    let mut fixture = Fixture::new();
    for uid in ["gone", "there"] {
        fixture.claim(uid, "");
        fixture.refuse(uid);
    }
    fixture.claim("new", "");
    let listed = Listed::of(&["there", "new"].map(|uid| claim(uid, "")));
    fixture.tracker.claims_listed(&listed, fixture.now);
    assert_eq!(fixture.tracker.sweep(fixture.now + GONE_FOR), []);
    let is_kept = ["gone", "there", "new"].map(|uid| fixture.tracker.task(uid).is_some());
    assert_eq!(is_kept, [false, true, true]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_counts_if_it_was_due() {
    let mut fixture = Fixture::new();
    fixture.volume(&released("due"));
    fixture.volume(&volume("bound", "", &json!({})));
    assert_eq!(fixture.tracker.report().due_deletions, 1);
    // Without the finalizer the last state shows nothing due.
    let last = json!({"status": {"phase": "Released"}, "metadata": {"name": "due",
        "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let later = fixture.now + Duration::from_secs(3);
    let mut deleted = |volume: &Volume| {
        let plan = plan(volume);
        fixture.tracker.volume_deleted(volume.name(), &plan, later)
    };
    let due_for =
        |seconds| Judgement::of_deletion(&DeletionPlan::Delete, Duration::from_secs(seconds));
    assert_eq!(deleted(&volume("due", "", &last)), due_for(3));
    assert_eq!(
        deleted(&volume("bound", "", &json!({}))),
        Judgement::of_deletion(&DeletionPlan::Keep, Duration::ZERO)
    );
    assert_eq!(deleted(&released("never-seen")), due_for(0));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_stays_due_while_others_keep_the_persistent_volume() {
    let mut fixture = Fixture::new();
    let state = |timestamp: Value, policy: &str| {
        let metadata = json!({"name": "pv", "uid": "pv", "deletionTimestamp": timestamp});
        let spec = json!({"persistentVolumeReclaimPolicy": policy});
        volume(
            "pv",
            "",
            &json!({"metadata": metadata, "spec": spec, "status": {"phase": "Released"}}),
        )
    };
    let terminating = state(json!("2026-01-01T00:00:00Z"), "Delete");
    fixture.volume(&state(Value::Null, "Delete"));
    // The provisioner's finalizer is removed, that of the PersistentVolume controller not yet.
    fixture.volume(&terminating);
    assert_eq!(fixture.tracker.report().due_deletions, 1);
    let gone = fixture.tracker.volume_deleted("pv", &plan(&terminating), fixture.now);
    assert_eq!(gone, Judgement::of_deletion(&DeletionPlan::Delete, Duration::ZERO));

    fixture.volume(&state(Value::Null, "Delete"));
    fixture.volume(&state(Value::Null, "Retain"));
    assert_eq!(fixture.tracker.report().due_deletions, 0, "somebody keeps it");
    fixture.volume(&terminating);
    assert_eq!(fixture.tracker.report().due_deletions, 0, "it was not due");
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_in_a_new_list_was_deleted() {
    let mut fixture = Fixture::new();
    fixture.volume(&released("gone"));
    fixture.volume(&released("there"));
    let gone = fixture.tracker.volumes_listed(&Listed::of(&[released("there")]), fixture.now);
    let due = Judgement::of_deletion(&DeletionPlan::Delete, Duration::ZERO);
    assert_eq!(gone, [("PersistentVolume gone".to_owned(), due)]);
    assert_eq!(fixture.tracker.report().due_deletions, 1);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_takes_an_hour_is_reported_once() {
    let mut fixture = Fixture::new();
    fixture.volume(&released("due"));
    let names = |results: Vec<(String, Judgement)>| -> Vec<String> {
        results.into_iter().map(|(name, _)| name).collect()
    };
    let later = fixture.now + KEPT_FOR;
    assert_eq!(names(fixture.tracker.sweep(later)), ["PersistentVolume due"]);
    assert_eq!(names(fixture.tracker.sweep(later)), [""; 0]);
    // It is protected again: somebody set another policy.
    fixture.volume(&volume("due", "", &json!({"status": {"phase": "Bound"}})));
    assert_eq!(fixture.tracker.report().due_deletions, 0);
}

#[tokio::test(start_paused = true)]
async fn everything_is_bounded() {
    let mut fixture = Fixture::new();
    for number in 0..=MAX_KEPT {
        fixture.claim(&format!("claim-{number}"), "");
        fixture.volume(&released(&format!("pv-{number}")));
    }
    let judgement = Judgement::of_deletion(&DeletionPlan::Keep, Duration::ZERO);
    for number in 0..2 * MAX_ROWS {
        fixture.tracker.record(number.to_string(), &judgement, String::new());
    }
    let report = fixture.tracker.report();
    assert_eq!((report.waiting_claims, report.due_deletions), (MAX_KEPT, MAX_KEPT));
    assert_eq!((report.not_kept, report.rows.len()), (2, MAX_ROWS));
    assert_eq!(report.rows[0].object, (2 * MAX_ROWS - 1).to_string(), "the newest first");
    assert_eq!(report.count(Agreement::Unknown), 2 * MAX_ROWS as u64);
}

#[tokio::test(start_paused = true)]
async fn what_is_the_same_is_counted_and_not_listed() {
    let mut tracker = Tracker::default();
    let same = Judgement::of_deletion(&DeletionPlan::Delete, Duration::ZERO);
    tracker.record("pv".into(), &same, String::new());
    let report = tracker.report();
    assert_eq!((report.count(Agreement::Same), report.rows.len()), (1, 0));
}
