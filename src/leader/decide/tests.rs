use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::*;
use crate::leader;

/// The wall time.
const NOW: i64 = 1;

/// Wall times of records that were written before.
const ACQUIRED: i64 = -20;
const RENEWED: i64 = -10;
const LATER: i64 = -5;

/// This wall time, in a record.
fn time(second: i64) -> MicroTime {
    micro_time(jiff::Timestamp::from_second(second).unwrap())
}

fn settings(pod_uid: Option<&str>) -> ElectionSettings {
    leader::settings::settings("me", pod_uid)
}

/// A record of `holder`, acquired and renewed some time ago.
fn record(holder: &str, transitions: i32) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(holder.into()),
        lease_duration_seconds: Some(15),
        acquire_time: Some(time(ACQUIRED)),
        renew_time: Some(time(RENEWED)),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    }
}

/// A record of another that is valid for so many seconds.
fn lasting(seconds: i32, transitions: i32) -> LeaseSpec {
    LeaseSpec { lease_duration_seconds: Some(seconds), ..record("other", transitions) }
}

/// The record, renewed at this wall time.
fn renewed(second: i64, record: LeaseSpec) -> LeaseSpec {
    LeaseSpec { renew_time: Some(time(second)), ..record }
}

fn own(acquired: i64, transitions: i32) -> LeaseSpec {
    LeaseSpec { acquire_time: Some(time(acquired)), ..renewed(NOW, record("me", transitions)) }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn held(record: LeaseSpec) -> ObservedLease {
    ObservedLease::Held { record, since: at(100) }
}

fn step(
    settings: &ElectionSettings,
    lease: &ObservedLease,
    written: &[LeaseSpec],
    leads_at: Option<i32>,
    now: Duration,
) -> Step {
    let wall = jiff::Timestamp::from_second(NOW).unwrap();
    decide(&Observation { settings, lease, exists: true, written, leads_at, wall }, now)
}

/// The step of a candidate once the Lease is deleted.
fn after_deletion(settings: &ElectionSettings, lease: &ObservedLease, now: Duration) -> Step {
    let wall = jiff::Timestamp::from_second(NOW).unwrap();
    let observed =
        Observation { settings, lease, exists: false, written: &[], leads_at: None, wall };
    decide(&observed, now)
}

fn candidate(lease: &ObservedLease, now: Duration) -> Step {
    step(&settings(None), lease, &[], None, now)
}

fn leader(lease: &ObservedLease, written: &[LeaseSpec]) -> Step {
    step(&settings(None), lease, written, Some(7), at(101))
}

#[test]
fn a_lease_that_nobody_or_this_name_holds_is_taken_or_renewed() {
    let absent = ObservedLease::Absent;
    let first = record("me", 7);
    let second = renewed(LATER, first.clone());
    // A write with unknown result counts as own when it is observed.
    let written = &[first.clone(), second.clone()][..];
    let (taken, own_name) = (Step::TakeOver(own(NOW, 8)), held(first));
    let interrupted = Step::StopLeading(Loss::Interrupted);
    for (case, lease, written, leads_at, now, expected) in [
        ("missing", &absent, &[][..], None, 0, Step::Create(own(NOW, 0))),
        ("missing under a leader", &absent, written, Some(7), 101, Step::Create(own(NOW, 0))),
        ("without holder", &held(record("", 7)), &[], None, 100, taken.clone()),
        ("own", &held(second), written, Some(7), 101, Step::Renew(own(ACQUIRED, 7))),
        ("lost its holder", &held(record("", 7)), &[], Some(7), 101, taken),
        ("another led in between", &held(record("", 8)), &[], Some(7), 101, interrupted),
        ("of this host, quiet for no period", &own_name, &[], None, 100, Step::Wait(at(110))),
        ("for less than two", &own_name, &[], None, 109, Step::Wait(at(110))),
        ("for two retry periods", &own_name, &[], None, 110, Step::Renew(own(ACQUIRED, 7))),
    ] {
        let step = step(&settings(None), lease, written, leads_at, at(now));
        assert_eq!(step, expected, "{case}");
    }
}

#[test]
fn a_lease_of_another_is_taken_once_its_record_is_unchanged_for_its_own_duration() {
    for (seconds, now, expected) in [
        (15, at(100), Step::Wait(at(115))),
        (15, Duration::new(114, 999_999_999), Step::Wait(at(115))),
        (15, at(115), Step::TakeOver(own(NOW, 8))),
        (15, at(9999), Step::TakeOver(own(NOW, 8))),
        (137, at(115), Step::Wait(at(237))),
        (0, at(100), Step::TakeOver(own(NOW, 8))),
        (-5, at(100), Step::TakeOver(own(NOW, 8))),
        // No settings are as long as that: it counts up to three minutes.
        (i32::MAX, at(279), Step::Wait(at(280))),
        (i32::MAX, at(280), Step::TakeOver(own(NOW, 8))),
    ] {
        assert_eq!(candidate(&held(lasting(seconds, 7)), now), expected, "{seconds} at {now:?}");
    }
}

#[test]
fn a_long_duration_counts_as_far_as_ours_is_long() {
    let ours = |seconds| {
        let mut settings = settings(None);
        settings.flags.lease_duration = at(seconds);
        settings
    };
    for (theirs, ours_is, until) in [(600, 300, 400), (600, 900, 700), (i32::MAX, 900, 1000)] {
        let lease = held(lasting(theirs, 7));
        let step = step(&ours(ours_is), &lease, &[], None, at(101));
        assert_eq!(step, Step::Wait(at(until)), "{theirs} {ours_is}");
    }
}

/// Who leads by other settings has made it anew by then.
#[test]
fn after_a_deletion_a_duration_counts_as_far_as_ours() {
    for (seconds, now, expected) in [
        (15, at(114), Step::Wait(at(115))),
        (10, at(110), Step::TakeOver(own(NOW, 8))),
        (137, at(114), Step::Wait(at(115))),
        (i32::MAX, at(115), Step::TakeOver(own(NOW, 8))),
    ] {
        let lease = held(lasting(seconds, 7));
        assert_eq!(after_deletion(&settings(None), &lease, now), expected, "{seconds} {now:?}");
    }
}

#[test]
fn times_in_the_record_are_ignored() {
    let old = renewed(0, record("other", 7));
    let future = renewed(32_472_144_000, record("other", 7));
    assert_eq!(candidate(&held(old), at(114)), Step::Wait(at(115)));
    assert_eq!(candidate(&held(future), at(115)), Step::TakeOver(own(NOW, 8)));
}

#[test]
fn a_record_under_the_pods_name_counts_as_own_at_once() {
    let settings = settings(Some("uid"));
    let lease = held(record("me_uid", 7));
    let expected =
        Step::Renew(LeaseSpec { holder_identity: Some("me_uid".into()), ..own(ACQUIRED, 7) });
    assert_eq!(step(&settings, &lease, &[], None, at(100)), expected);
    assert_eq!(step(&settings, &lease, &[], Some(7), at(100)), expected);
}

#[test]
fn a_leader_with_a_bare_host_name_stops_when_another_process_of_that_name_writes() {
    assert_eq!(
        leader(&held(renewed(LATER, record("me", 7))), &[record("me", 7)]),
        Step::StopLeading(Loss::SameName("me".into()))
    );
}

/// Arbitrary observations and candidates.
mod properties {
    use proptest::prelude::*;

    use super::*;

    fn any_record() -> impl Strategy<Value = LeaseSpec> {
        let holder = prop_oneof![
            Just(None),
            Just(Some("")),
            Just(Some("me")),
            Just(Some("me_uid")),
            Just(Some("other"))
        ];
        let second = || prop_oneof![Just(None), Just(Some(ACQUIRED)), Just(Some(LATER))];
        let number = || prop::option::of(prop_oneof![any::<i32>(), -5_i32..60]);
        (holder, number(), second(), second(), number()).prop_map(
            |(holder, seconds, acquired, renewed, transitions)| LeaseSpec {
                holder_identity: holder.map(str::to_owned),
                lease_duration_seconds: seconds,
                acquire_time: acquired.map(time),
                renew_time: renewed.map(time),
                lease_transitions: transitions,
                ..LeaseSpec::default()
            },
        )
    }

    fn any_lease() -> impl Strategy<Value = ObservedLease> {
        let held = (any_record(), 0_u64..200)
            .prop_map(|(record, since)| ObservedLease::Held { record, since: at(since) });
        prop_oneof![1 => Just(ObservedLease::Absent), 9 => held]
    }

    /// A candidate with or without a unique name, what it observes, and when.
    #[derive(Debug, Clone)]
    struct Case {
        settings: ElectionSettings,
        lease: ObservedLease,
        written: Vec<LeaseSpec>,
        leads_at: Option<i32>,
        now: Duration,
    }

    impl Case {
        fn step_at(&self, now: Duration) -> Step {
            step(&self.settings, &self.lease, &self.written, self.leads_at, now)
        }

        fn step(&self) -> Step {
            self.step_at(self.now)
        }

        fn held(&self) -> Option<(&LeaseSpec, Duration)> {
            match &self.lease {
                ObservedLease::Absent => None,
                ObservedLease::Held { record, since } => Some((record, *since)),
            }
        }

        fn holder(&self) -> Option<&str> {
            self.held().map(|(record, _)| super::holder(record))
        }

        fn me(&self) -> &str {
            self.settings.identity.name()
        }
    }

    fn any_case() -> impl Strategy<Value = Case> {
        let written = prop::collection::vec(any_record(), 0..3);
        let leads = prop_oneof![Just(None), any::<i32>().prop_map(Some)];
        (any::<bool>(), any_lease(), written, leads, 200_u64..400).prop_map(
            |(named, lease, mut written, leads_at, now)| {
                // Often the observed record is the one that was written.
                if let (ObservedLease::Held { record, .. }, true) = (&lease, now % 2 == 0) {
                    written.push(record.clone());
                }
                let settings = settings(named.then_some("uid"));
                Case { settings, lease, written, leads_at, now: at(now) }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn only_a_lease_without_active_holder_is_taken(case in any_case()) {
            let Step::TakeOver(_) = case.step() else { return Ok(()) };
            let (record, since) = case.held().unwrap();
            if !super::holder(record).is_empty() {
                prop_assert_ne!(super::holder(record), case.me());
                prop_assert_eq!(case.leads_at, None);
                let counted = seconds(record.lease_duration_seconds).as_secs().min(180);
                let stands_until = since.saturating_add(at(counted));
                prop_assert!(stands_until <= case.now);
            }
        }

        #[test]
        fn a_leader_never_overwrites_what_another_process_wrote(case in any_case()) {
            if case.leads_at.is_none() {
                return Ok(());
            }
            if case.holder().is_some_and(|holder| !holder.is_empty() && holder != case.me()) {
                prop_assert!(matches!(case.step(), Step::StopLeading(Loss::OtherHolder(_))));
            }
            if let (Step::Renew(_), Some((record, _))) = (case.step(), case.held()) {
                prop_assert!(case.settings.identity.unique || case.written.contains(record));
            }
        }

        #[test]
        fn written_records_have_the_candidates_name_and_count_transitions(case in any_case()) {
            let before = case.held().map_or(-1, |(record, _)| transitions(record));
            let (record, expected) = match case.step() {
                Step::Create(record) => (record, 0),
                Step::TakeOver(record) => {
                    prop_assert!(transitions(&record) >= 0);
                    let follows = (0..i32::MAX).contains(&before);
                    (record, if follows { before + 1 } else { 0 })
                }
                Step::Renew(record) => (record, before),
                Step::Wait(_) | Step::StopLeading(_) => return Ok(()),
            };
            prop_assert_eq!(super::holder(&record), case.me());
            prop_assert_eq!(record.lease_duration_seconds, Some(15));
            prop_assert_eq!(record.lease_transitions, Some(expected));
            prop_assert_eq!(record.renew_time, Some(time(NOW)));
        }

        #[test]
        fn a_wait_ends(case in any_case()) {
            let Step::Wait(until) = case.step() else { return Ok(()) };
            prop_assert!(case.now < until);
            prop_assert!(matches!(case.step_at(until), Step::TakeOver(_) | Step::Renew(_)));
        }

        #[test]
        fn only_a_leader_stops_leading(case in any_case()) {
            if let Step::StopLeading(_) = case.step() {
                prop_assert!(case.leads_at.is_some());
            }
        }
    }
}
