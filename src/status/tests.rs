use std::collections::BTreeMap;

use super::*;
use crate::controller::model::overview::Stage;

fn status() -> Status {
    let claim = ListedClaim {
        namespace: "shop".into(),
        name: "data".into(),
        class: "fast".into(),
        age_seconds: 125,
        attempts: 3,
        last_failure: Some(LastFailure {
            code: "Internal".into(),
            message: "rpc error: code = Internal desc = <b>no</b>".into(),
            seconds_ago: 5,
        }),
        next: Next::Later { seconds: 90 },
        ..ListedClaim::default()
    };
    let claims = Claims {
        by_stage: BTreeMap::from([(Stage::Waiting, 1), (Stage::InFlight, 2)]),
        listed: vec![claim],
        more: 4,
    };
    let queue = QueueState { name: "claims".into(), ready: 1, processing: 2, delayed: 3 };
    Status {
        version: "v0".into(),
        driver: DriverStatus {
            name: "d.example.com".into(),
            plugin_capabilities: vec!["CONTROLLER_SERVICE".into()],
            ..DriverStatus::default()
        },
        leader: LeaderStatus { leads: true, identity: "pod".into(), lease: "csi/d".into() },
        missing_rights: vec!["lacks <this>".into()],
        work: Overview { claims, queues: vec![queue], ..Overview::default() },
        ..Status::default()
    }
}

#[test]
fn json_is_read_back() {
    let status = status();
    let read: Status = serde_json::from_str(&status.to_json()).unwrap();
    assert_eq!(read, status);
    assert!(status.to_json().contains("\"inFlight\": 2"), "{}", status.to_json());
}

#[test]
fn a_status_of_a_later_version_can_be_read() {
    let read: Status = serde_json::from_str(r#"{"new": 1, "leader": {"leads": true}}"#).unwrap();
    assert!(read.leader.leads);
}

#[test]
fn queries() {
    for (text, claim, volume) in [
        ("", None, None),
        ("claim=shop/data", Some("shop/data"), None),
        ("claim=shop%2Fdata&x=y", Some("shop/data"), None),
        ("x&volume=pv-1", None, Some("pv-1")),
        ("claim=&volume", None, None),
    ] {
        let own = |text: Option<&str>| text.map(str::to_owned);
        assert_eq!(query(text), Query { claim: own(claim), volume: own(volume) }, "{text}");
    }
}
