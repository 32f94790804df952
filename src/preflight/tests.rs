//! What is checked, and what is reported.

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
