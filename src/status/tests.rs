use std::collections::BTreeMap;

use super::*;
use crate::{
    controller::{claims::state::Stage, overview::Claims},
    shadow,
};

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
fn the_page_shows_what_there_is() {
    let page = status().to_html();
    for part in [
        "<title>csi-provisioner: d.example.com</title>",
        "pod leads by the Lease csi/d",
        "d.example.com, not connected",
        "1 without an open call, 2 with a running call",
        "shop/data",
        "2m05s",
        "(5s ago)",
        "in 1m30s",
        "4 more are not listed.",
        "lacks &lt;this&gt;",
    ] {
        assert!(page.contains(part), "{part} is missing in {page}");
    }
}

/// The page has no text of others as HTML, and loads nothing.
#[test]
fn texts_are_escaped_and_nothing_is_loaded() {
    let odd = "<script>alert(1)</script>\" onload='x' \u{1b}[2J\u{202e}&";
    let mut status = status();
    let claim = &mut status.work.claims.listed[0];
    for text in [&mut claim.namespace, &mut claim.name, &mut claim.class] {
        *text = odd.to_owned();
    }
    claim.last_failure = Some(LastFailure { message: odd.to_owned(), ..LastFailure::default() });
    status.driver.name = odd.to_owned();
    status.leader.lease = odd.to_owned();
    status.not_ready = Some(odd.to_owned());
    status.missing_rights = vec![odd.to_owned()];
    let page = status.to_html();
    assert!(!page.contains("<script") && !page.contains("onload='"), "{page}");
    assert!(!page.chars().any(|c| c != '\n' && crate::plain_text::is_odd(c)), "{page}");
    for outside in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside} in {page}");
    }
}

#[test]
fn an_empty_status_is_a_page_as_well() {
    let page = Status::default().to_html();
    assert!(page.contains("works without leader election") && page.contains("none"), "{page}");
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

#[test]
fn durations() {
    for (seconds, text) in [
        (0, "0s"),
        (59, "59s"),
        (60, "1m00s"),
        (3_599, "59m59s"),
        (3_600, "1h00m"),
        (90_000, "1d01h"),
    ] {
        assert_eq!(duration(seconds), text);
    }
}

#[test]
fn the_page_of_shadow_mode_shows_its_results_instead() {
    let row = shadow::Row {
        time: "2026-01-01T00:00:00Z".into(),
        object: "PersistentVolumeClaim shop/data".into(),
        subject: shadow::Subject::Volume,
        agreement: shadow::Agreement::Unexplained,
        row: None,
        reasons: vec!["spec.x: <b>".into()],
    };
    let report = ShadowReport { not_kept: 3, rows: vec![row], ..ShadowReport::default() };
    let status = Status { shadow: Some(report), ..status() };
    let page = status.to_html();
    for part in
        ["compares, and writes nothing", "shop/data", "unexplained", "spec.x: &lt;b&gt;", "3 could"]
    {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(!page.contains("Claims in work"), "{page}");
    let read: Status = serde_json::from_str(&status.to_json()).unwrap();
    assert_eq!(read, status);
}
