//! What is checked, and what is reported.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::{Value, json};

use super::*;
use crate::{
    kube::testing::{Answer, Server, client},
    logging::testing::logged,
    metrics::Metrics,
};

/// A server that returns these rules in every namespace; single checks return `allowed`.
fn server(rules: Value, incomplete: bool, allowed: bool) -> Server {
    Server::new(move |_, request| {
        let status = match request.json()["kind"].as_str() {
            Some("SelfSubjectRulesReview") => {
                json!({"resourceRules": rules, "incomplete": incomplete})
            }
            _ => json!({"allowed": allowed}),
        };
        Answer::json(201, &json!({"status": status}))
    })
}

/// A rule for each need of the features except those on `resource`.
fn all_but(resource: &str) -> Value {
    let needs = NEEDS.iter().filter(|need| need.resource != resource);
    needs
        .map(|need| {
            json!({"apiGroups": [need.group], "resources": [need.resource], "verbs": [need.verb]})
        })
        .collect()
}

const ALL: [Feature; 2] = [Feature::Provisioning, Feature::LeaderElection];

/// The log and the metrics.
async fn outcome(server: &Server, features: &[Feature]) -> (String, String) {
    let (log, _guard) = logged();
    let metrics = Metrics::new();
    let namespaces = Namespaces { lease: "csi".to_owned(), capacity: "disks".to_owned() };
    let mut preflight = Preflight::new(client(server), namespaces, metrics.api.clone());
    preflight.check(features).await;
    let page = metrics.text();
    let gauge = page.lines().filter(|line| line.starts_with("provisioner_missing_permissions{"));
    (log.text(), gauge.collect::<Vec<_>>().join("\n"))
}

#[tokio::test(start_paused = true)]
async fn with_all_rights_nothing_is_logged() {
    let server = server(all_but("nothing"), false, false);
    assert_eq!(outcome(&server, &ALL).await, (String::new(), String::new()));
    let namespaces: Vec<Value> = server
        .requests()
        .iter()
        .map(|request| request.json()["spec"]["namespace"].clone())
        .collect();
    assert_eq!(namespaces, [UNBOUND_NAMESPACE, "csi"], "one request for each namespace");
}

#[tokio::test(start_paused = true)]
async fn missing_rights_on_a_resource_are_one_log_line_with_the_rule_to_add() {
    let (log, gauge) = outcome(&server(all_but("leases"), false, false), &ALL).await;
    assert_eq!(log.lines().count(), 1, "{log}");
    for part in [
        "the Role in namespace csi",
        r#"apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["get", "watch", "create", "update"]"#,
    ] {
        assert!(log.contains(part), "missing {part} in {log}");
    }
    assert_eq!(gauge.lines().count(), 4);
    assert!(gauge.contains(r#"{group="coordination.k8s.io",resource="leases",verb="create"} 1"#));
}

#[tokio::test(start_paused = true)]
async fn the_rights_to_find_an_owner_are_needed_where_the_pod_is() {
    let server = server(all_but("pods"), false, false);
    let (log, gauge) =
        outcome(&server, &[Feature::CapacityOwner, Feature::CapacityOwnersOwner]).await;
    assert!(log.contains("the Role in namespace disks"), "{log}");
    assert_eq!(gauge, r#"provisioner_missing_permissions{group="",resource="pods",verb="get"} 1"#);
    let namespaces: Vec<Value> = server
        .requests()
        .iter()
        .map(|request| request.json()["spec"]["namespace"].clone())
        .collect();
    assert_eq!(namespaces, ["disks"]);
}

#[tokio::test(start_paused = true)]
async fn rights_of_disabled_features_are_not_checked() {
    let without = server(all_but("leases"), false, false);
    let (log, _) = outcome(&without, &[Feature::Provisioning]).await;
    assert_eq!(log, "");
    assert_eq!(without.requests().len(), 1, "no feature needs the Lease's namespace");
}

#[tokio::test(start_paused = true)]
async fn if_rules_are_incomplete_each_unlisted_right_is_checked() {
    let granted = server(all_but("secrets"), true, true);
    let (log, _) = outcome(&granted, &[Feature::Secrets]).await;
    assert_eq!(log, "");
    let question = granted.requests().last().unwrap().json();
    let expected = json!({"verb": "get", "group": "", "resource": "secrets", "namespace": ""});
    assert_eq!(question["spec"]["resourceAttributes"], expected);
    let (log, gauge) = outcome(&server(all_but("secrets"), true, false), &[Feature::Secrets]).await;
    assert!(log.contains("the ClusterRole") && !gauge.is_empty(), "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_check_is_logged_once() {
    for code in [403, 404] {
        let refusing = Server::new(move |_, _| Answer::refusal(code, "Forbidden", "no"));
        let (log, _guard) = logged();
        let metrics = Metrics::new();
        let namespaces = Namespaces { lease: "csi".to_owned(), capacity: String::new() };
        let mut preflight = Preflight::new(client(&refusing), namespaces, metrics.api.clone());
        for _ in 0..3 {
            assert_eq!(preflight.check(&ALL).await, None);
        }
        assert_eq!(log.text().lines().count(), 1, "{}", log.text());
        assert!(!metrics.text().contains("provisioner_missing_permissions{"));
    }
}

/// A change is reported, and the gauge falls.
#[tokio::test(start_paused = true)]
async fn a_right_granted_later_is_reported() {
    let granted = Arc::new(AtomicBool::new(false));
    let is_granted = Arc::clone(&granted);
    let server = Server::new(move |_, request| {
        let all = is_granted.load(Ordering::Relaxed);
        let rules = all_but(if all { "nothing" } else { "leases" });
        assert_eq!(request.json()["kind"], "SelfSubjectRulesReview");
        Answer::json(201, &json!({"status": {"resourceRules": rules, "incomplete": false}}))
    });
    let (log, _guard) = logged();
    let metrics = Metrics::new();
    let namespaces = Namespaces { lease: "csi".to_owned(), capacity: String::new() };
    let mut preflight = Preflight::new(client(&server), namespaces, metrics.api.clone());
    let missing_permissions = preflight.check(&ALL).await.unwrap().to_owned();
    assert!(
        missing_permissions[0].to_string().contains("to the Role in namespace csi"),
        "{}",
        missing_permissions[0]
    );
    assert_eq!(preflight.check(&ALL).await, None, "no change");
    assert_eq!(log.text().lines().count(), 1);
    granted.store(true, Ordering::Relaxed);
    assert_eq!(preflight.check(&ALL).await, Some(&[][..]));
    assert!(!metrics.text().contains("provisioner_missing_permissions{"));
}

#[tokio::test(start_paused = true)]
async fn rights_are_checked_every_ten_minutes_and_soon_after_a_forbidden_request() {
    let forbidden = Notify::new();
    let waited = async |after: Option<Duration>| {
        let start = tokio::time::Instant::now();
        let refused = async {
            if let Some(after) = after {
                sleep(after).await;
                forbidden.notify_one();
            }
        };
        tokio::join!(wait(&forbidden), refused);
        start.elapsed()
    };
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    assert_eq!(waited(None).await, minutes(10));
    assert_eq!(waited(Some(Duration::from_secs(3))).await, minutes(1), "not more often");
    assert_eq!(waited(Some(minutes(4))).await, minutes(4));
    forbidden.notify_one();
    assert_eq!(waited(None).await, minutes(10), "the look before has answered that");
}
