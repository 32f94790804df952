//! An explanation, and how it is printed.
//!
//! Texts of claims, drivers and servers are truncated and escaped here, and nowhere else: whoever makes a
//! sentence may use them as they are.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::Serialize;

use super::runbook;
use csi_provisioner::plain_text::{cut, escaped};

use crate::subcommand::Output;

/// The longest text that is printed, in bytes.
const MAX_TEXT: usize = 1024;

/// The page that anchors are on.
const PAGE: &str = "docs/troubleshooting.md";

/// Where an object stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// There is nothing to do.
    Served,
    /// It waits for something that comes by itself, or that is not wrong.
    Waiting,
    /// It cannot be found out.
    Unknown,
    /// Something must be corrected.
    Wrong,
}

impl State {
    /// The exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Served => 0,
            Self::Waiting => 1,
            Self::Wrong => 2,
            Self::Unknown => super::UNKNOWN,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Served => "is served",
            Self::Waiting => "waits",
            Self::Wrong => "needs a correction",
            Self::Unknown => "cannot be explained",
        }
    }
}

/// A sentence, with the row of docs/troubleshooting.md about it if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sentence {
    /// The text.
    pub text: String,
    /// The row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub see: Option<String>,
}

/// Where an object stands, why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Its kind, namespace and name.
    pub object: String,
    /// Where it stands.
    pub state: State,
    /// Why.
    pub sentences: Vec<Sentence>,
    /// What to do.
    pub what_to_do: Vec<String>,
    /// Facts by name, for programs.
    pub details: BTreeMap<&'static str, String>,
}

/// Why an object stands where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    pub(super) state: State,
    /// The sentence.
    pub(super) text: String,
    /// Whether the sentence has the text of an event, which docs/troubleshooting.md explains.
    is_event: bool,
    /// The row of docs/troubleshooting.md, if the sentence has no text of an event.
    anchor: Option<&'static str>,
    /// What to do, if no row says it.
    what_to_do: Option<String>,
}

/// What to do about the text of an event without a row of its own.
const NO_ROW: &str = "Correct what the message names.";

/// The same where it may end by itself.
const WAITS: &str = "It is tried again. If that lasts, correct what the message names.";

impl Cause {
    /// A cause with this sentence.
    pub(super) fn new(state: State, text: impl Into<String>) -> Self {
        Self { state, text: text.into(), is_event: false, anchor: None, what_to_do: None }
    }

    /// A cause with a sentence that has the text of an event.
    pub(super) fn event(state: State, text: impl Into<String>) -> Self {
        Self { is_event: true, ..Self::new(state, text) }
    }

    /// The row of docs/troubleshooting.md with this anchor is about it.
    pub(super) fn see(self, anchor: &'static str) -> Self {
        Self { anchor: Some(anchor), ..self }
    }

    /// What to do about it.
    pub(super) fn advise(self, what_to_do: impl Into<String>) -> Self {
        Self { what_to_do: Some(what_to_do.into()), ..self }
    }
}

impl Explanation {
    /// An explanation of this object by this cause.
    pub(super) fn new(object: &str, cause: Cause) -> Self {
        let mut explanation = Self {
            object: printable(object),
            state: cause.state,
            sentences: Vec::new(),
            what_to_do: Vec::new(),
            details: BTreeMap::new(),
        };
        explanation.add(cause);
        explanation
    }

    /// Adds another cause. The worse state counts.
    pub(super) fn add(&mut self, cause: Cause) {
        let Cause { state, text, is_event, anchor, what_to_do } = cause;
        self.state = self.state.max(state);
        let advice = match anchor {
            Some(anchor) => runbook::at(anchor),
            None if is_event => runbook::look_up(&text),
            None => None,
        };
        let see = anchor.or_else(|| advice.as_ref().map(|advice| advice.anchor));
        self.sentences.push(Sentence {
            text: printable(&text),
            see: see.map(|anchor| format!("{PAGE}#{anchor}")),
        });
        let advised = what_to_do.or_else(|| advice.map(|row| row.what_to_do()));
        let no_row = if state == State::Wrong { NO_ROW } else { WAITS };
        let advised = advised.or_else(|| is_event.then(|| no_row.to_owned()));
        if state != State::Served {
            self.what_to_do.extend(advised.as_deref().map(printable));
        }
    }

    /// Adds a sentence.
    pub(super) fn say(&mut self, text: impl AsRef<str>) {
        self.sentences.push(Sentence { text: printable(text.as_ref()), see: None });
    }

    /// Adds a fact.
    pub(super) fn detail(&mut self, name: &'static str, value: impl AsRef<str>) {
        self.details.insert(name, printable(value.as_ref()));
    }

    /// What to print.
    pub fn output(&self, is_json: bool) -> Output {
        let text = if is_json { self.to_json() } else { self.to_text() };
        Output::printed(text, self.state.exit_code())
    }

    /// The explanation for a person.
    pub fn to_text(&self) -> String {
        let mut text = format!("{} {}.\n\n", self.object, self.state.words());
        for Sentence { text: sentence, see } in &self.sentences {
            let see = see.as_ref().map(|row| format!("\n  See {row}")).unwrap_or_default();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "- {sentence}{see}");
        }
        if !self.what_to_do.is_empty() {
            text.push_str("\nWhat to do:\n");
            for advice in &self.what_to_do {
                let _ = writeln!(text, "- {advice}");
            }
        }
        text
    }

    /// The explanation for a program.
    pub fn to_json(&self) -> String {
        // Cannot fail: all keys of maps are texts.
        let json = serde_json::to_string_pretty(self).unwrap_or_default();
        json + "\n"
    }
}

/// One line for a terminal, truncated and with odd characters escaped.
fn printable(text: &str) -> String {
    escaped(&cut(text, MAX_TEXT)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_state_counts_and_each_cause_brings_its_advice() {
        let cause = Cause::event(State::Waiting, "snapshot snap is not Ready");
        let mut explanation = Explanation::new("PersistentVolumeClaim shop/data", cause);
        let cause = Cause::new(State::Wrong, "no replica leads").advise("Start one.");
        explanation.add(cause);
        assert_eq!(explanation.state, State::Wrong);
        let text = explanation.to_text();
        assert_eq!(
            text,
            "PersistentVolumeClaim shop/data needs a correction.\n\n\
             - snapshot snap is not Ready\n  See docs/troubleshooting.md#snapshot-not-ready\n\
             - no replica leads\n\nWhat to do:\n\
             - The driver has not finished the snapshot. It is tried again when the snapshot changes; \
             if it does not become ready, look at csi-snapshotter.\n- Start one.\n"
        );
        let json: serde_json::Value = serde_json::from_str(&explanation.to_json()).unwrap();
        assert_eq!(json["state"], "wrong");
        let see = "docs/troubleshooting.md#snapshot-not-ready";
        assert_eq!(json["sentences"][0]["see"], see);
    }

    #[test]
    fn texts_of_others_are_truncated_and_escaped() {
        let odd = format!("\u{1b}[31m\n\u{202e}{}", "x".repeat(5000));
        let mut explanation = Explanation::new(&odd, Cause::new(State::Unknown, &odd));
        explanation.say(&odd);
        explanation.detail("driver", &odd);
        for text in [explanation.to_text(), explanation.to_json()] {
            assert!(text.len() < 6000, "{}", text.len());
            assert!(
                !text.chars().any(|c| c != '\n' && csi_provisioner::plain_text::is_odd(c)),
                "{text}"
            );
        }
    }
}
