//! What differs from run to run, and its stand-ins: `<uid:KIND:NAME>` stands for an object's UID in a scenario, and
//! in the outcome UIDs, identities, generated names and the socket's path give way to such marks.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

use super::leak::SALT;

/// The UIDs met in one run, and its socket.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    pub(super) uids: Vec<(String, String)>,
    pub(super) socket: String,
}

static IDENTITY: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new("[0-9]{13}-[0-9]{1,4}-").ok());
static GENERATED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("csisc-[a-z0-9]{5}").ok());
static CUT: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("-([0-9a-f]{6,})").ok());

impl Names {
    /// Remembers an object's UID.
    pub(super) fn learn(&mut self, object: &Value) {
        let part = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let uid = part("/metadata/uid").to_owned();
        let mark = format!("<uid:{}:{}>", part("/kind"), part("/metadata/name"));
        match self.uids.iter_mut().find(|(known, _)| *known == uid) {
            Some((_, known)) => *known = mark,
            None => self.uids.push((uid, mark)),
        }
    }

    /// Puts UIDs in place of their marks; of several objects the last met.
    pub(super) fn fill(&self, value: &Value) -> Value {
        let text = value.to_string();
        let filled = self.uids.iter().rev().fold(text, |text, (uid, mark)| text.replace(mark, uid));
        parsed(filled)
    }

    /// Puts marks in place of what differs from run to run, and takes the salt off secrets.
    pub(super) fn norm(&self, value: &Value) -> Value {
        let salt = Value::from(SALT).to_string();
        let unsalted = value.to_string().replace(salt.trim_matches('"'), "");
        let text = self.uids.iter().fold(unsalted, |text, (uid, mark)| mark_uid(text, uid, mark));
        let text = replace_all(&IDENTITY, &text, "<identity>-");
        let text = replace_all(&GENERATED, &text, "csisc-<generated>");
        let text = match self.socket.as_str() {
            "" => text,
            socket => text.replace(socket, "<socket>"),
        };
        // A server and a client that watch the same deadline word it differently.
        parsed(text.replace(
            "code = DeadlineExceeded desc = Deadline Exceeded",
            "code = DeadlineExceeded desc = context deadline exceeded",
        ))
    }

    /// [`Names::norm`] of a text.
    pub(super) fn norm_text(&self, text: &str) -> Value {
        self.norm(&Value::String(text.to_owned()))
    }
}

fn parsed(text: String) -> Value {
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

fn replace_all(pattern: &LazyLock<Option<Regex>>, text: &str, with: &str) -> String {
    match &**pattern {
        Some(pattern) => pattern.replace_all(text, regex::NoExpand(with)).into_owned(),
        None => text.to_owned(),
    }
}

/// Marks one UID: with its dashes, without them, and cut short after a dash as in volume names.
fn mark_uid(text: String, uid: &str, mark: &str) -> String {
    let digits = uid.replace('-', "");
    if !digits.get(..6).is_some_and(|start| text.contains(start)) {
        return text;
    }
    let text = text.replace(uid, mark).replace(&digits, &mark.replace("<uid:", "<uid[32]:"));
    let Some(cuts) = CUT.as_ref() else { return text };
    let marked = cuts.replace_all(&text, |found: &Captures<'_>| {
        let (whole, [cut]) = found.extract();
        if cut.len() < 32 && digits.starts_with(cut) {
            format!("-{}", mark.replace("<uid:", &format!("<uid[:{}]:", cut.len())))
        } else {
            whole.to_owned()
        }
    });
    marked.into_owned()
}
