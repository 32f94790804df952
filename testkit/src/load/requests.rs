//! How often what was asked of the API server, and how much was said: from the embedded server's record, or
//! from the audit log of one that was started.

use std::{
    collections::BTreeMap,
    io::{self, BufRead},
};

use serde::{Deserialize, Serialize};

use crate::apiserver::audit::Recorded;

/// Requests to the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Requests {
    /// How many of each `verb resource/subresource`.
    calls: BTreeMap<String, u64>,
    /// Bytes of their bodies; only where the server is embedded.
    bytes_written: Option<u64>,
    /// Bytes of the answers' bodies, watches included; only where the server is embedded.
    bytes_read: Option<u64>,
}

impl Requests {
    /// The requests of `user` that the embedded server has answered.
    pub(super) fn recorded(recorded: &[Recorded], user: &str) -> Self {
        let (mut calls, mut written, mut read) = (BTreeMap::new(), 0, 0);
        for request in recorded.iter().filter(|request| request.user.name == user) {
            *calls.entry(request.what()).or_default() += 1;
            written += request.bytes_in;
            read += request.sent();
        }
        Self { calls, bytes_written: Some(written), bytes_read: Some(read) }
    }

    /// The requests of `user` in kube-apiserver's audit log, whose last line may be half written.
    pub(super) fn in_audit_log(log: impl BufRead, user: &str) -> io::Result<Self> {
        let mut calls = BTreeMap::new();
        for line in log.lines() {
            let audited = serde_json::from_str::<Audited>(&line?);
            let Some(what) = audited.ok().and_then(|audited| audited.what(user)) else { continue };
            *calls.entry(what).or_default() += 1;
        }
        Ok(Self { calls, bytes_written: None, bytes_read: None })
    }

    /// What came after `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
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
