//! The audit log: a line of JSON for every answered request, as kube-apiserver writes them.
//!
//! Owns the shape of a line (an `audit.k8s.io/v1` Event of level Metadata, stage
//! `ResponseComplete`) and the file. Promises that a line is in the file before the client has the
//! answer. A watch is logged once, when it begins.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::apiserver::{audit::Recorded, hooks::AuditSink, request_info::RequestInfo};

/// The file the lines go to.
#[derive(Debug)]
pub(super) struct AuditFile(Mutex<File>);

impl AuditFile {
    /// Appends to the file at `path`, which is made where it is missing.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self(Mutex::new(file)))
    }
}

impl AuditSink for AuditFile {
    /// Writes one line. A full disk costs lines of a test's log, not the server.
    fn record(&self, recorded: &Recorded) {
        let line = format!("{}\n", event(recorded));
        let _ = self.0.lock().write_all(line.as_bytes());
    }
}

fn event(recorded: &Recorded) -> Value {
    let Recorded { user, info, code, received, answered, .. } = recorded;
    let mut event = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata",
        "stage": "ResponseComplete", "requestURI": info.uri, "verb": info.verb,
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;

    use super::*;
    use crate::apiserver::User;

    fn line(method: &str, uri: &str) -> Value {
        let info = RequestInfo::parse(&method.parse().unwrap(), &uri.parse().unwrap());
        event(&Recorded {
            user: User::new("u"),
            info,
            code: 201,
            bytes_in: 0,
            bytes_out: Arc::default(),
            received: Timestamp::UNIX_EPOCH,
            answered: Timestamp::UNIX_EPOCH,
        })
    }

    #[test]
    fn a_line_tells_user_verb_object_and_code() {
        let line = line("PATCH", "/api/v1/namespaces/sc/persistentvolumeclaims/c/status?x=1");
        assert_eq!(line["user"]["username"], "u");
        assert_eq!(line["verb"], "patch");
        assert_eq!(line["requestURI"], "/api/v1/namespaces/sc/persistentvolumeclaims/c/status?x=1");
        assert_eq!(line["responseStatus"]["code"], 201);
        assert_eq!(
            line["objectRef"],
            json!({"resource": "persistentvolumeclaims", "namespace": "sc", "name": "c",
                   "apiVersion": "v1", "subresource": "status"})
        );
    }

    #[test]
    fn a_path_that_is_no_resource_has_no_object() {
        assert!(line("GET", "/version").get("objectRef").is_none());
    }
}
