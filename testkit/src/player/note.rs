//! What a scenario's notes write down.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use regex::Regex;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    names::Names,
    outcome::{series, text},
    run::Run,
    scenario::Subject,
    wait::{ClusterView as _, named, walk},
};

impl Run<'_> {
    /// Looks at what a note is about.
    pub(super) async fn look(&self, subject: &Subject) -> Value {
        match subject {
            Subject::Exit(process) => self.exit(process).into(),
            Subject::Http { path, body } => page(self.http(path).await, body.as_ref()),
            Subject::Grew { method, by, during } => self.grew(method, by.as_deref(), *during).await,
            Subject::Count { method, by } => {
                let counts = self.calls_by(method, by.as_deref());
                if by.is_some() { json!(counts) } else { counts.values().sum::<usize>().into() }
            }
            Subject::Peak(method) => {
                self.driver.backend().flight(method).map_or(0, |flight| flight.peak).into()
            }
            Subject::Deadline(method) => {
                let flight = self.driver.backend().flight(method);
                flight.and_then(|flight| flight.first_time_left).map_or(Value::Null, half_seconds)
            }
            Subject::Events(object) => events(&self.list("Event").await, object, &self.names),
            Subject::Volumes => volumes(&self.driver.backend().volumes(), &self.names),
            Subject::Log { pattern, only_whether } => {
                let found = found(pattern, &self.processes.last_log());
                if *only_whether { (!found.is_empty()).into() } else { json!(found) }
            }
            Subject::File { path, remove } => file(path, *remove),
            Subject::Metrics { pattern, values } => {
                let (_, page) = self.http("/metrics").await.unwrap_or_default();
                json!(series(&page, pattern, *values))
            }
            Subject::Object { kind, name, namespace, path } => {
                let name = named(name, self).await;
                match self.object(kind, namespace.as_deref(), &name).await {
                    (404, _) => "gone".into(),
                    (_, object) => walk(&object, path).cloned().into(),
                }
            }
        }
    }

    /// Whether calls come within some seconds, of each value or of any.
    async fn grew(&self, method: &str, by: Option<&str>, during: f64) -> Value {
        let before = self.calls_by(method, by);
        sleep(Duration::try_from_secs_f64(during).unwrap_or_default()).await;
        let grew = growth(&before, &self.calls_by(method, by));
        if by.is_some() { json!(grew) } else { grew.values().any(|grew| *grew).into() }
    }
}

/// What matches in a text, each once and sorted; of a pattern with a group, the group.
fn found(pattern: &Regex, text: &str) -> BTreeSet<String> {
    let groups = pattern.captures_iter(text);
    let texts = groups.filter_map(|groups| groups.get(usize::from(groups.len() > 1)));
    texts.map(|found| found.as_str().to_owned()).collect()
}

/// The status, `null` when there was none, and what matches in the body.
fn page(answer: Option<(u16, String)>, body: Option<&Regex>) -> Value {
    let (status, text) = answer.map_or((None, String::new()), |(s, text)| (Some(s), text));
    let found = body.map(|body| found(body, &text)).unwrap_or_default();
    std::iter::once(json!(status)).chain(found.into_iter().map(Value::from)).collect()
}

/// Which counts are larger than before.
fn growth(
    before: &BTreeMap<String, usize>,
    after: &BTreeMap<String, usize>,
) -> BTreeMap<String, bool> {
    let earlier = |key: &String| before.get(key).copied().unwrap_or(0);
    after.iter().map(|(key, count)| (key.clone(), *count > earlier(key))).collect()
}

/// Seconds, rounded to halves as Python rounds: a tie goes to the even neighbour.
fn half_seconds(left: Duration) -> Value {
    json!((left.as_secs_f64() * 2.0).round_ties_even() / 2.0)
}

/// Type, reason, count and message of an object's events.
fn events(events: &[Value], object: &str, names: &Names) -> Value {
    let about = events.iter().filter(|event| text(event, "/involvedObject/name") == object);
    let mut noted: Vec<_> = about
        .map(|event| {
            let message = names.norm_text(text(event, "/message"));
            let count = event.get("count").and_then(Value::as_i64);
            (text(event, "/type"), text(event, "/reason"), count, text(&message, "").to_owned())
        })
        .collect();
    noted.sort();
    json!(noted)
}

/// The ids under which the driver holds volumes, with their marks.
fn volumes(volumes: &BTreeSet<String>, names: &Names) -> Value {
    let mut noted: Vec<_> = volumes
        .iter()
        .map(|id| names.norm_text(id))
        .map(|id| id.as_str().map(str::to_owned))
        .collect();
    noted.sort();
    json!(noted)
}

/// Removes what an earlier run left where the note looks for a file.
pub(super) fn remove_leftover(subject: &Subject) {
    if let Subject::File { path, remove: true } = subject {
        // It is rarely there.
        let _ = fs::remove_file(path);
    }
}

fn file(path: &str, remove: bool) -> Value {
    let text = fs::read_to_string(path).ok();
    if remove {
        // It may never have been there.
        let _ = fs::remove_file(path);
    }
    text.into()
}
