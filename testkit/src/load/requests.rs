//! How often what was asked of the API server, and how much was said.
//!
//! Owns the counts: of the embedded server's requests as they are answered, from the audit log of one
//! that was started, or, where the server is somebody else's, from the metrics of the program itself.
//! Promises that the difference of two readings is what happened between them.

use std::{
    collections::BTreeMap,
    io::{self, BufRead},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::apiserver::{audit::Recorded, hooks::AuditSink};

/// The program's own count of its requests.
const METRIC: &str = "provisioner_api_requests_total";

/// Requests to the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// How many of each `verb resource/subresource`.
    pub calls: BTreeMap<String, u64>,
    /// Bytes of their bodies; only where the server is ours.
    pub bytes_written: Option<u64>,
    /// Bytes of the answers' bodies, watches included; only where the server is ours.
    pub bytes_read: Option<u64>,
}

impl Requests {
    /// The requests that the program's metrics page counts; `None` where it counts none.
    pub fn in_metrics(page: &str) -> Option<Self> {
        let mut calls = BTreeMap::new();
        for line in page.lines() {
            let Some((verb, resource, count)) = sample(line) else { continue };
            *calls.entry(format!("{verb} {resource}")).or_default() += count;
        }
        (!calls.is_empty()).then_some(Self { calls, bytes_written: None, bytes_read: None })
    }

    /// The requests of `user` in kube-apiserver's audit log, whose last line may be half written.
    ///
    /// # Errors
    /// When the log can't be read.
    pub fn in_audit_log(log: impl BufRead, user: &str) -> io::Result<Self> {
        let mut calls = BTreeMap::new();
        for line in log.lines() {
            let audited = serde_json::from_str::<Audited>(&line?);
            let Some(what) = audited.ok().and_then(|audited| audited.what(user)) else { continue };
            *calls.entry(what).or_default() += 1;
        }
        Ok(Self { calls, bytes_written: None, bytes_read: None })
    }

    /// What came after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |what: &str| earlier.calls.get(what).copied().unwrap_or_default();
        let new = self.calls.iter().map(|(what, count)| (what, count.saturating_sub(before(what))));
        let bytes = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        Self {
            calls: new.filter(|(_, new)| *new > 0).map(|(what, new)| (what.clone(), new)).collect(),
            bytes_written: bytes(self.bytes_written, earlier.bytes_written),
            bytes_read: bytes(self.bytes_read, earlier.bytes_read),
        }
    }
}

/// Counts the requests to the embedded server as they are answered: its own record forgets the
/// oldest where there are many.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<BTreeMap<String, Count>>);

/// What one user has asked.
#[derive(Debug, Default)]
struct Count {
    calls: BTreeMap<String, u64>,
    written: u64,
    /// The bytes of each answer so far: they are counted as they go.
    read: Vec<Arc<AtomicU64>>,
}

impl Tally {
    /// The requests of `user`.
    pub(super) fn requests(&self, user: &str) -> Requests {
        let users = self.0.lock();
        let none = Count::default();
        let Count { calls, written, read } = users.get(user).unwrap_or(&none);
        let read = read.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum();
        Requests { calls: calls.clone(), bytes_written: Some(*written), bytes_read: Some(read) }
    }
}

impl AuditSink for Tally {
    fn record(&self, recorded: &Recorded) {
        let mut users = self.0.lock();
        let count = users.entry(recorded.user.name.clone()).or_default();
        *count.calls.entry(recorded.what()).or_default() += 1;
        count.written += recorded.bytes_in;
        count.read.push(Arc::clone(&recorded.bytes_out));
    }
}

/// What a line of an audit log says of a request.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Audited {
    stage: String,
    verb: String,
    user: AuditedUser,
    object_ref: Option<AuditedObject>,
    #[serde(rename = "requestURI")]
    uri: String,
}

#[derive(Deserialize)]
struct AuditedUser {
    username: String,
}

#[derive(Deserialize)]
struct AuditedObject {
    resource: String,
    subresource: Option<String>,
}

impl Audited {
    /// `verb resource/subresource` of a request of `user`. A watch has two lines: at its beginning,
    /// which is the one that counts, and at its end.
    fn what(self, user: &str) -> Option<String> {
        let begins = self.stage == "ResponseStarted";
        if self.user.username != user || begins != (self.verb == "watch") {
            return None;
        }
        let verb = self.verb;
        Some(match self.object_ref {
            None => format!("{verb} {}", self.uri),
            Some(AuditedObject { resource, subresource: None }) => format!("{verb} {resource}"),
            Some(AuditedObject { resource, subresource: Some(subresource) }) => {
                format!("{verb} {resource}/{subresource}")
            }
        })
    }
}

/// Verb, resource and count of a line like `METRIC{code="200",resource="r",verb="v"} 3`.
fn sample(line: &str) -> Option<(&str, &str, u64)> {
    let (labels, count) = line.strip_prefix(METRIC)?.strip_prefix('{')?.split_once("} ")?;
    let label = |name: &str| {
        labels
            .split(',')
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'))
    };
    Some((label("verb")?, label("resource")?, count.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::{User, request_info::RequestInfo};

    fn recorded(user: &str, method: &str, uri: &str, bytes: u64) -> Recorded {
        Recorded {
            user: User::new(user),
            info: RequestInfo::parse(&method.parse().unwrap(), &uri.parse().unwrap()),
            code: 200,
            bytes_in: bytes,
            bytes_out: Arc::new((2 * bytes).into()),
            received: jiff::Timestamp::UNIX_EPOCH,
            answered: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    fn calls(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
        of.iter().map(|(what, count)| ((*what).to_owned(), *count)).collect()
    }

    #[test]
    fn only_the_measured_users_requests_count() {
        let volumes = "/api/v1/persistentvolumes";
        let all = [
            recorded("measured", "POST", volumes, 100),
            recorded("measured", "POST", volumes, 10),
            recorded("somebody", "POST", volumes, 1),
            recorded("measured", "PATCH", "/api/v1/persistentvolumes/x/status", 1000),
        ];
        let tally = Tally::default();
        for request in &all {
            tally.record(request);
        }
        let requests = tally.requests("measured");
        let expected =
            calls(&[("create persistentvolumes", 2), ("patch persistentvolumes/status", 1)]);
        assert_eq!(requests.calls, expected);
        assert_eq!((requests.bytes_written, requests.bytes_read), (Some(1110), Some(2220)));
    }

    #[test]
    fn a_metrics_page_is_summed_over_codes() {
        let page = "# TYPE provisioner_api_requests_total counter\n\
            provisioner_api_requests_total{code=\"201\",resource=\"events\",verb=\"create\"} 40\n\
            provisioner_api_requests_total{code=\"409\",resource=\"events\",verb=\"create\"} 2\n\
            provisioner_api_requests_total{code=\"200\",resource=\"leases\",verb=\"update\"} 7\n\
            provisioner_api_requests_total_other{verb=\"x\",resource=\"y\"} 7\n\
            workqueue_adds_total{name=\"claims\"} 1\n";
        let requests = Requests::in_metrics(page).unwrap();
        assert_eq!(requests.calls, calls(&[("create events", 42), ("update leases", 7)]));
        assert_eq!(requests.bytes_read, None);
        assert_eq!(Requests::in_metrics("rest_client_requests_total{code=\"200\"} 3\n"), None);
    }

    #[test]
    fn an_audit_log_tells_each_request_of_the_user_once() {
        let line = |user: &str, stage: &str, verb: &str, object: &str| {
            format!(
                r#"{{"stage":"{stage}","verb":"{verb}","requestURI":"/version","user":{{"username":"{user}"}}{object}}}"#
            )
        };
        let volumes = r#","objectRef":{"resource":"persistentvolumes"}"#;
        let status = r#","objectRef":{"resource":"persistentvolumes","subresource":"status"}"#;
        let log = [
            line("measured", "ResponseComplete", "create", volumes),
            line("measured", "ResponseComplete", "patch", status),
            line("somebody", "ResponseComplete", "create", volumes),
            line("measured", "ResponseStarted", "watch", volumes),
            line("measured", "ResponseComplete", "watch", volumes),
            line("measured", "ResponseComplete", "get", ""),
            line("measured", "ResponseComplete", "create", volumes)[..40].to_owned(),
        ];
        let requests = Requests::in_audit_log(log.join("\n").as_bytes(), "measured").unwrap();
        let expected = calls(&[
            ("create persistentvolumes", 1),
            ("patch persistentvolumes/status", 1),
            ("watch persistentvolumes", 1),
            ("get /version", 1),
        ]);
        assert_eq!(requests.calls, expected);
    }

    #[test]
    fn the_difference_leaves_out_what_did_not_happen() {
        let reading = |of: &[(&str, u64)], bytes| Requests {
            calls: calls(of),
            bytes_written: Some(bytes),
            bytes_read: None,
        };
        let earlier = reading(&[("list pods", 1), ("get secrets", 2)], 10);
        let later = reading(&[("list pods", 1), ("get secrets", 5), ("create events", 1)], 15);
        let between = reading(&[("get secrets", 3), ("create events", 1)], 5);
        assert_eq!(later.since(&earlier), between);
    }
}
