//! The audit log: for every answered request a line of JSON as kube-apiserver writes them (level Metadata). It
//! is in the file before the client has the answer. A watch is logged once, when it begins.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::apiserver::{audit::Recorded, request_info::RequestInfo};

/// The file the lines go to.
#[derive(Debug)]
pub struct AuditFile(Mutex<File>);

impl AuditFile {
    /// Appends to the file at `path`, which is made where it is missing.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self(Mutex::new(file)))
    }

    /// Writes one line. A full disk costs lines of a test's log, not the server.
    pub(in crate::apiserver) fn record(&self, recorded: &Recorded) {
        let line = format!("{}\n", event(recorded));
        let _ = self.0.lock().write_all(line.as_bytes());
    }
}

fn event(recorded: &Recorded) -> Value {
    let Recorded { user, info, code, received, answered, .. } = recorded;
    let begins = info.verb == "watch" && *code == 200;
    let stage = if begins { "ResponseStarted" } else { "ResponseComplete" };
    let mut event = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata",
        "stage": stage, "requestURI": info.uri, "verb": info.verb,
        "user": {"username": user.name, "groups": user.groups},
        "sourceIPs": ["127.0.0.1"], "responseStatus": {"metadata": {}, "code": code},
        "requestReceivedTimestamp": received.to_string(), "stageTimestamp": answered.to_string(),
    });
    if let (true, Value::Object(fields)) = (info.is_resource, &mut event) {
        fields.insert("objectRef".to_owned(), object_ref(info));
    }
    event
}

fn object_ref(info: &RequestInfo) -> Value {
    let members = [
        ("resource", &info.resource),
        ("namespace", &info.namespace),
        ("name", &info.name),
        ("apiGroup", &info.group),
        ("apiVersion", &info.version),
        ("subresource", &info.subresource),
    ];
    let filled = members.into_iter().filter(|(_, value)| !value.is_empty());
    filled.map(|(key, value)| (key.to_owned(), Value::from(value.as_str()))).collect()
}
