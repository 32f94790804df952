//! Texts of others are escaped; what is listed and released is tested on the real program.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};

use super::*;
use crate::{
    subcommand::Command,
    testing::{self, Answer, Server, client},
};

fn claims(name: &str, driver: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "shop", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1",
            "finalizers": [record_status::FINALIZER, "kubernetes.io/pvc-protection"],
            "annotations": {record_status::RECORD: json!({"driver": driver, "volume": "pvc-1"}).to_string()},
        },
        "spec": {},
    })
}

async fn report(server: &Server, arguments: &[&str]) -> Output {
    let parsed = testing::parse("release-claims", arguments).unwrap();
    let Command::ReleaseClaims(request) = parsed else { panic!("{parsed:?}") };
    let report = run(&client(server), &request, "kube-system").await;
    report.unwrap_or_else(|why| Output::failure(&why, FAILED))
}

/// A record is text of the claim's user.
#[tokio::test(start_paused = true)]
async fn only_names_of_a_record_are_printed() {
    let mut claim = claims("a", "d");
    let record = json!({"driver": "\u{1b}[31md", "volume": "$(reboot)\nshop  b"});
    claim["metadata"]["annotations"][record_status::RECORD] = json!(record.to_string());
    let list = json!({"metadata": {}, "items": [claim]});
    let server = Server::new(move |_| Answer::json(200, &list));
    let text = report(&server, &[]).await.text;
    assert!(text.contains("shop       a      -       -       -\n"), "{text}");
}

/// This includes text of a Lease and of the server's responses.
#[tokio::test(start_paused = true)]
async fn control_characters_are_printed_escaped() {
    let odd = "a\u{1b}[2J\nshop  b \u{202e}";
    let escaped = r"a\u{1b}[2J\nshop  b \u{202e}";
    let list = json!({"metadata": {}, "items": [claims(odd, "d"), claims("b", "other")]});
    let lease = json!({"spec": {"holderIdentity": odd}});
    let server = Server::new(move |request| match request.url.as_str() {
        url if url.contains("/leases/d") => Answer::json(200, &lease),
        url if url.contains("/leases/") => Answer::refusal(403, "Forbidden", odd),
        _ => Answer::json(200, &list),
    });
    let report = report(&server, &["--release"]).await;
    assert!(
        report.text.contains(&format!("shop       {escaped}  d       pvc-1   -\n")),
        "{report:?}"
    );
    let expected = format!("shop/{escaped}: {escaped} leads by");
    assert!(report.errors[0].starts_with(&expected), "{report:?}");
    let lines: Vec<&str> = report.text.lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    let printed = report.errors.iter().map(String::as_str).chain(lines);
    for line in printed {
        assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line:?}");
    }
    let refused = Server::new(move |_| Answer::refusal(500, "InternalError", odd));
    let failure = self::report(&refused, &[]).await.errors.remove(0);
    assert!(failure.contains(escaped) && !failure.contains(odd), "{failure}");
}

/// By this machine's clock each of these Leases ran out long ago.
#[tokio::test(start_paused = true)]
async fn who_renews_the_lease_leads_whatever_the_clock_says() {
    for (renewed_at, leads) in [(None, false), (Some(1), true), (Some(15), true)] {
        let reads = Arc::new(AtomicUsize::new(0));
        let server = Server::new(move |_| {
            let read = reads.fetch_add(1, Ordering::Relaxed);
            let second = u8::from(renewed_at.is_some_and(|at| read >= at));
            let renewed = format!("2001-01-01T00:00:0{second}.000000Z");
            let spec =
                json!({"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": renewed});
            Answer::json(200, &json!({"metadata": {}, "spec": spec}))
        });
        let checked = check_no_leader(&client(&server), "kube-system", "d").await;
        assert_eq!(
            checked.is_err_and(|why| why.starts_with("a leads by")),
            leads,
            "{renewed_at:?}"
        );
    }
}
