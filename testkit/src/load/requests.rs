//! How often what was asked of the API server, and how much was said: counted as the embedded server answers, or
//! from the audit log of one that was started.

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

/// Requests to the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// How many of each `verb resource/subresource`.
    pub calls: BTreeMap<String, u64>,
    /// Bytes of their bodies; only where the server is embedded.
    pub bytes_written: Option<u64>,
    /// Bytes of the answers' bodies, watches included; only where the server is embedded.
    pub bytes_read: Option<u64>,
}

impl Requests {
    /// The requests of `user` in kube-apiserver's audit log, whose last line may be half written.
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
