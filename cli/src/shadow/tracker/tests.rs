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
async fn a_claim_is_compared_once_and_kept_only_until_it_is_bound() {
    let mut fixture = Fixture::new();
    for uid in ["bound-first", "compared-first"] {
        fixture.claim(uid, "");
    }
    fixture.claim("bound-first", "pvc-a");
    for uid in ["bound-first", "compared-first"] {
        assert!(fixture.tracker.finish(uid));
        assert!(!fixture.tracker.finish(uid));
        assert!(fixture.tracker.task(uid).is_none());
    }
    assert!(!fixture.claim("compared-first", ""), "an event from before its volume");
    assert_eq!((fixture.tracker.kept().0, fixture.tracker.report().waiting_claims), (1, 0));
    assert!(!fixture.claim("compared-first", "pvc-b"));
    assert_eq!(fixture.tracker.kept().0, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_from_a_new_list_was_deleted() {
    let mut fixture = Fixture::new();
    for uid in ["gone", "there"] {
        fixture.claim(uid, "");
        fixture.refuse(uid);
        fixture.volume(&released(uid));
    }
    let listed = Listed::of(&[claim("there", "")]);
    fixture.tracker.claims_listed(&listed, fixture.now);
    assert_eq!(fixture.tracker.sweep(fixture.now + GONE_FOR), []);
    let is_kept = ["gone", "there"].map(|uid| fixture.tracker.task(uid).is_some());
    assert_eq!(is_kept, [false, true]);
    let gone = fixture.tracker.volumes_listed(&Listed::of(&[released("there")]), fixture.now);
    let due = Judgement::of_deletion(&DeletionPlan::Delete, Duration::ZERO);
    assert_eq!(gone, [("PersistentVolume gone".to_owned(), due)]);
    assert_eq!(fixture.tracker.report().due_deletions, 1);
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
    let same = Judgement::of_deletion(&DeletionPlan::Delete, Duration::ZERO);
    fixture.tracker.record("pv".into(), &same, String::new());
    let ShadowReport { rows, .. } = fixture.tracker.report();
    assert!(rows.iter().all(|row| row.object != "pv"), "what is the same is only counted");
}
