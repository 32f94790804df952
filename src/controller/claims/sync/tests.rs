use serde_json::json;

use super::*;
use crate::{
    controller::{
        claims::{
            node::remove_node,
            reporting::{is_failed_attempt, labels},
        },
        model::unusable_volume::UnusableVolume,
        ownership::SELECTED_NODE,
        provisioner::Failure,
    },
    kube::Edit,
};

#[test]
fn the_poll_interval_grows_up_to_the_longest_retry_interval() {
    let max = Duration::from_secs(300);
    let milliseconds = |in_a_row| repeat_delay(in_a_row, false, 0.5, max).as_millis();
    let grown = [1, 2, 3, 5, 6, 7, 1000].map(milliseconds);
    assert_eq!(grown, [437, 875, 1750, 7000, 13125, 13125, 13125]);
    let after_time_outs =
        [1, 5, 7, 8, 1000].map(|in_a_row| repeat_delay(in_a_row, true, 0.5, max).as_millis());
    assert_eq!(after_time_outs, [437, 7000, 28000, 52500, 52500]);
    for timed_out in [false, true] {
        let short = Duration::from_secs(2);
        assert_eq!(repeat_delay(9, timed_out, 0.99, short), short);
    }
    for unit in [0.0, 0.999] {
        let delay = repeat_delay(4, false, unit, max).as_secs_f64();
        assert!((3.0..4.0).contains(&delay), "{delay}");
        assert!(repeat_delay(9, false, unit, max) <= Duration::from_secs(15));
    }
}

#[test]
fn only_the_refused_node_is_given_back() {
    let claim = |node: &str| json!({"metadata": {"annotations": {SELECTED_NODE: node, "a": "b"}}});
    let mut refused = claim("n1");
    assert!(matches!(remove_node(&mut refused, Some("n1")), Edit::Write));
    assert_eq!(refused, json!({"metadata": {"annotations": {"a": "b"}}}));
    let mut chosen_since = claim("n2");
    assert!(matches!(remove_node(&mut chosen_since, Some("n1")), Edit::Nothing));
    assert_eq!(chosen_since, claim("n2"));
    assert!(matches!(remove_node(&mut json!({"metadata": {}}), None), Edit::Nothing));
}

#[test]
fn the_source_label_is_bounded() {
    let label =
        |spec: serde_json::Value| labels(&serde_json::from_value(json!({"spec": spec})).unwrap()).1;
    assert_eq!(label(json!({})), "");
    for kind in ["VolumeSnapshot", "PersistentVolumeClaim"] {
        assert_eq!(label(json!({"dataSource": {"kind": kind, "name": "n"}})), kind);
    }
    assert_eq!(label(json!({"dataSource": {"kind": "Anything", "name": "n"}})), "other");
}

/// A repeat that finds the call still open is a failed attempt, as in external-provisioner.
#[test]
fn attempts_that_ended_without_a_volume_are_counted_as_failed() {
    let failure = || Failure::new("why");
    let unusable = UnusableVolume {
        handle: "h".into(),
        credentials: crate::controller::model::unusable_volume::Credentials::default(),
        defect: failure(),
        orphaned: failure(),
    };
    let table = [
        (Outcome::Refused(failure(), Next::Retry), true),
        (Outcome::Refused(failure(), Next::Rest), true),
        (Outcome::Background(failure()), true),
        (Outcome::Unsent(failure()), true),
        (Outcome::Refused(failure(), Next::GiveNodeBack), false),
        (Outcome::Unusable(Box::new(unusable)), false),
        (Outcome::Provisioned(Box::default()), false),
    ];
    for (outcome, counted) in table {
        assert_eq!(is_failed_attempt(&outcome), counted, "{outcome:?}");
    }
}
