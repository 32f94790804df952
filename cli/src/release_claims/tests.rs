use serde_json::{Value, json};

use super::*;
use crate::subcommand;
use crate::testing::{Answer, Epoch, RecordedRequest, Server, client};

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

/// Two claims with records and one without, and a Lease of the driver `d` that is `held`.
fn server(held: bool) -> Server {
    let list = json!({"metadata": {}, "items": [claims("a", "d"), claims("b", "other"), {"metadata": {"name": "plain"}}]});
    let lease = json!({"spec": {"holderIdentity": if held { "pod-1" } else { "" }}});
    Server::new(move |request| match (request.method.as_str(), request.url.as_str()) {
        ("GET", "/api/v1/persistentvolumeclaims?limit=500") => Answer::json(200, &list),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/d") => {
            Answer::json(200, &lease)
        }
        ("GET", url) if url.contains("/leases/") => Answer::refusal(404, "NotFound", "not found"),
        ("GET", url) if url.ends_with("/a") => Answer::json(200, &claims("a", "d")),
        ("GET", url) if url.ends_with("/b") => Answer::json(200, &claims("b", "other")),
        ("PUT", _) => Answer::json(200, &request.json()),
        other => panic!("{other:?}"),
    })
}

async fn report(server: &Server, arguments: &[&str]) -> Output {
    let request = subcommand::parse(arguments, WRONG_ARGUMENTS).unwrap();
    run(&client(server), &Epoch, &request, "kube-system").await
}

/// The claims that were written, by name.
fn put(server: &Server) -> Vec<Value> {
    server
        .requests()
        .iter()
        .filter(|request| request.method == "PUT")
        .map(RecordedRequest::json)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_changed_without_release() {
    let server = server(false);
    let report = report(&server, &[]).await;
    assert_eq!(
        report.text,
        "NAMESPACE  CLAIM  DRIVER  VOLUME  DELETED\n\
         shop       a      d       pvc-1   -\n\
         shop       b      other   pvc-1   -\n\
         Nothing was changed; --release takes finalizer and record off.\n"
    );
    assert!(report.errors.is_empty() && put(&server).is_empty());
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

#[tokio::test(start_paused = true)]
async fn released_claims_lose_only_finalizer_and_record() {
    let server = server(false);
    let report = report(&server, &["--release", "--driver=d"]).await;
    assert!(report.text.ends_with("shop/a released\n"), "{}", report.text);
    let written = put(&server);
    assert_eq!(written.len(), 1, "only the driver's");
    assert_eq!(written[0]["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    assert_eq!(written[0]["metadata"]["annotations"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn while_a_replica_leads_its_claims_stay_unless_forced() {
    let held = server(true);
    let refused = report(&held, &["--release"]).await;
    assert_eq!(refused.errors.len(), 1, "{:?}", refused.errors);
    assert!(refused.errors[0].starts_with("shop/a: pod-1 leads by the Lease kube-system/d"));
    assert_eq!(put(&held).len(), 1, "the other driver's is released");
    let held = server(true);
    assert!(report(&held, &["--release", "--force"]).await.errors.is_empty());
    assert_eq!(put(&held).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_list_is_an_error() {
    let server = Server::new(|_| Answer::refusal(403, "Forbidden", "no"));
    let report = report(&server, &[]).await;
    assert!(report.errors[0].starts_with("cannot list claims"), "{:?}", report.errors);
}

#[test]
fn arguments_are_read_and_others_refused() {
    let parse = |args: &[&str]| subcommand::parse::<Request>(args, WRONG_ARGUMENTS);
    assert_eq!(parse(&[]), Ok(Request::default()));
    let all = parse(&[
        "--release",
        "--force",
        "--driver=d",
        "--kubeconfig",
        "k",
        "--master=m",
        "--leader-election-namespace=n",
    ])
    .unwrap();
    assert!(all.release && all.force);
    assert_eq!((all.driver.as_deref(), all.lease_namespace.as_deref()), (Some("d"), Some("n")));
    assert_eq!(parse(&["--relase"]).unwrap_err().exit_code, 2);
    assert_eq!(parse(&["--help"]).unwrap_err().exit_code, 0);
    assert_eq!(parse(&["claim"]).unwrap_err().exit_code, 2);
}
