//! Whether an outcome is the expected one.
//!
//! Owns the comparison: the parts that must be equal, those of which only what both recordings had
//! must be there (`unstable`), the metrics, and what only an expectation by ruling says: how often
//! a call comes, and which metrics must not be there.

use std::{collections::BTreeMap, fmt};

use serde_json::{Value, json};

use super::{outcome::Outcome, python};

/// The parts of an outcome that are compared.
const STABLE: [&str; 10] = [
    "problems",
    "csi",
    "pvs",
    "pvcs",
    "events",
    "snapshots",
    "capacities",
    "leases",
    "exit",
    "notes",
];

/// One part of an outcome that is not as expected.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Which part.
    pub part: String,
    /// In what it differs.
    pub detail: Detail,
}

/// In what a part differs.
#[derive(Debug, Clone, PartialEq)]
pub enum Detail {
    /// Entries that must be there are not; what else there is does not matter.
    Missing(Vec<Value>),
    /// A list has other entries, or the same in another order.
    List {
        /// Expected entries that are not there.
        missing: Vec<Value>,
        /// Entries that were not expected.
        extra: Vec<Value>,
        /// Whether only the order differs.
        order: bool,
    },
    /// A single value differs.
    Value {
        /// What was expected.
        expected: Value,
        /// What came.
        got: Value,
    },
    /// Metrics have other values.
    Values(Vec<String>),
}

/// Compares as the reference player does.
pub(super) fn differences(expected: &Outcome, got: &Outcome) -> Vec<Difference> {
    let unstable = expected.get("unstable").and_then(Value::as_array);
    let is_unstable = |part| unstable.is_some_and(|parts| parts.iter().any(|p| p == part));
    STABLE
        .iter()
        .filter_map(|&part| {
            let (want, have) = (expected.get(part), got.get(part));
            let detail = if is_unstable(part) { lacking(want, have) } else { unlike(want, have) };
            Some(Difference { part: part.to_owned(), detail: detail? })
        })
        .collect()
}

fn entries(part: Option<&Value>) -> &[Value] {
    part.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The entries of `list` that are not among `known`.
fn without(list: &[Value], known: &[Value]) -> Vec<Value> {
    list.iter().filter(|entry| !python::contains(known, entry)).cloned().collect()
}

fn lacking(want: Option<&Value>, have: Option<&Value>) -> Option<Detail> {
    let missing = without(entries(want), entries(have));
    (!missing.is_empty()).then_some(Detail::Missing(missing))
}

fn unlike(want: Option<&Value>, have: Option<&Value>) -> Option<Detail> {
    let (want, have) = (want.unwrap_or(&Value::Null), have.unwrap_or(&Value::Null));
    if python::equal(want, have) {
        return None;
    }
    if !want.is_array() {
        return Some(Detail::Value { expected: want.clone(), got: have.clone() });
    }
    let (want, have) = (entries(Some(want)), entries(Some(have)));
    Some(Detail::List {
        missing: without(want, have),
        extra: without(have, want),
        order: sorted(want) == sorted(have),
    })
}

fn sorted(entries: &[Value]) -> Vec<String> {
    let mut texts: Vec<_> = entries.iter().map(python::dumps).collect();
    texts.sort_unstable();
    texts
}

// === Metrics ===

/// How often there may be a try that fails.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tries {
    /// As a ruling says, which is another matter.
    Ruled,
    /// Not much oftener than recorded. A back-off follows the clock and a scenario's steps the machine, which
    /// is this much slower than it should be.
    Often(f64),
}

/// Compares the metrics: every recorded series must be there, and with the recorded value, unless
/// it counts tries ([`is_as_good`]).
pub(super) fn metric_differences(
    expected: &Outcome,
    got: &Outcome,
    tries: Tries,
) -> Vec<Difference> {
    let have = parsed(entries(got.get("metrics")));
    let want = parsed(entries(expected.get("metrics")));
    let (mut missing, mut values) = (Vec::new(), Vec::new());
    for (series, value) in want {
        match have.get(series) {
            None => missing.push(series.into()),
            Some(found) if *found == value || is_as_good(series, found, value, tries) => {}
            Some(found) => values.push(format!("{series} {found} instead of {value}")),
        }
    }
    let found = |detail| Difference { part: "metrics".to_owned(), detail };
    let missing = (!missing.is_empty()).then(|| found(Detail::Missing(missing)));
    let values = (!values.is_empty()).then(|| found(Detail::Values(values)));
    missing.into_iter().chain(values).collect()
}

// === By ruling ===

/// What a recording leaves open and a ruling does not: `csi_counts` are bounds for the methods
/// named there, and `absent_metrics` are series that must not be there.
pub(super) fn ruled_differences(expected: &Outcome, got: &Outcome) -> Vec<Difference> {
    let outside = counts_outside(expected.get("csi_counts"), got.get("csi_counts"));
    let have = parsed(entries(got.get("metrics")));
    let absent = entries(expected.get("absent_metrics")).iter().filter_map(Value::as_str);
    let there = absent.filter(|series| have.contains_key(series));
    let there: Vec<_> = there.map(|series| format!("{series} must not be there")).collect();
    let found = |part: &str, values: Vec<String>| {
        let difference = Difference { part: part.to_owned(), detail: Detail::Values(values) };
        Some(difference).filter(|d| d.detail != Detail::Values(Vec::new()))
    };
    [found("csi_counts", outside), found("metrics", there)].into_iter().flatten().collect()
}

/// The outcome without the events that `late_events` names: what waits long enough is reported, which a
/// scenario whose steps follow each other at once shows only on a slow machine.
pub(super) fn without_late_events(expected: &Outcome, got: &Outcome) -> Outcome {
    let late = entries(expected.get("late_events"));
    let mut got = got.clone();
    if let Some(events) = got.get_mut("events").and_then(Value::as_array_mut) {
        events.retain(|event| !python::contains(late, event));
    }
    got
}

/// The methods that were called less or more often than `[least, most]`.
fn counts_outside(want: Option<&Value>, have: Option<&Value>) -> Vec<String> {
    let bounds = want.and_then(Value::as_object).into_iter().flatten();
    let outside = bounds.filter_map(|(method, bounds)| {
        let bound = |place: usize| bounds.get(place).and_then(Value::as_u64);
        let calls = have.and_then(|have| have.get(method)).and_then(Value::as_u64).unwrap_or(0);
        let inside = bound(0).is_some_and(|least| least <= calls)
            && bound(1).is_some_and(|most| calls <= most);
        (!inside).then(|| format!("{method} {calls} times instead of {bounds}"))
    });
    outside.collect()
}

/// Lines as series and value.
fn parsed(lines: &[Value]) -> BTreeMap<&str, &str> {
    lines.iter().filter_map(Value::as_str).filter_map(|line| line.rsplit_once(' ')).collect()
}

/// Whether a series of tries that counts `found` is as good as one that counts `recorded`: there were
/// any in both. An alert rests on failures: they must not come much oftener than the reference's,
/// unless a ruling says that they are tried otherwise.
fn is_as_good(series: &str, found: &str, recorded: &str, tries: Tries) -> bool {
    let number = |value: &str| value.parse::<f64>().unwrap_or(f64::INFINITY);
    let (found, recorded) = (number(found), number(recorded));
    let both_tried = (found > 0.0) == (recorded > 0.0);
    let is_call = series.starts_with("csi_sidecar_operations_seconds_count");
    let is_failure = series.contains("_failed_total");
    // Back-offs of the same length still end a try sooner or later.
    let as_often = match tries {
        Tries::Ruled => true,
        Tries::Often(slowness) => found <= (2.0 * recorded + 2.0) * slowness,
    };
    both_tried && (is_call || is_failure && as_often)
}

// === impl Difference ===

impl Difference {
    /// The difference as the reference player prints it.
    pub fn to_json(&self) -> Value {
        match &self.detail {
            Detail::Missing(missing) => json!([self.part, "missing", missing]),
            Detail::List { missing, extra, order } => {
                let order = if *order { "order" } else { "" };
                json!([self.part, {"missing": missing, "extra": extra}, order])
            }
            Detail::Value { expected, got } => json!([self.part, expected, got]),
            Detail::Values(values) => json!([self.part, "values", values]),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As much as the reference player prints.
        let shown: String = self.to_json().to_string().chars().take(1500).collect();
        f.write_str(&shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(lines: &[&str]) -> Outcome {
        [("metrics".to_owned(), json!(lines))].into_iter().collect()
    }

    #[test]
    fn a_recorded_series_must_be_there_with_its_value_unless_it_counts_tries() {
        let tries = r#"csi_sidecar_operations_seconds_count{method_name="Probe"}"#;
        let expected =
            metrics(&["a_total{x=\"1 2\"} 2", "b_failed_total 4", "c 0", &format!("{tries} 1")]);
        let same = metrics(&[
            "a_total{x=\"1 2\"} 2",
            "b_failed_total 3",
            "c 0",
            "d 9",
            &format!("{tries} 7"),
        ]);
        assert_eq!(metric_differences(&expected, &same, Tries::Often(1.0)), []);
        let risen = metrics(&["b_failed_total 11"]);
        let found = |tries| metric_differences(&metrics(&["b_failed_total 4"]), &risen, tries);
        let more = Detail::Values(vec!["b_failed_total 11 instead of 4".to_owned()]);
        assert_eq!(found(Tries::Often(1.0)), [Difference { part: "metrics".into(), detail: more }]);
        assert_eq!(found(Tries::Often(1.2)), [], "on a slow machine");
        assert_eq!(found(Tries::Ruled), []);
        let other = metrics(&["a_total{x=\"1 2\"} 3", "b_failed_total 0", "c 0"]);
        let details: Vec<_> = metric_differences(&expected, &other, Tries::Often(9.0))
            .into_iter()
            .map(|d| d.detail)
            .collect();
        assert_eq!(
            details,
            [
                Detail::Missing(vec![tries.into()]),
                Detail::Values(vec![
                    "a_total{x=\"1 2\"} 3 instead of 2".to_owned(),
                    "b_failed_total 0 instead of 4".to_owned(),
                ]),
            ]
        );
    }

    #[test]
    fn a_ruling_bounds_calls_and_forbids_metrics() {
        let outcome = |value: Value| value.as_object().unwrap().clone();
        let expected = outcome(
            json!({"csi_counts": {"DeleteVolume": [1, 2]}, "absent_metrics": ["failed{}"]}),
        );
        let found = |calls: u64, metrics: &[&str]| {
            let got = outcome(json!({
                "csi_counts": {"DeleteVolume": calls, "Probe": 9}, "metrics": metrics
            }));
            let found = ruled_differences(&expected, &got);
            found.iter().map(|d| d.to_json().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(found(1, &["other{} 1"]), [""; 0]);
        assert_eq!(found(2, &[]), [""; 0]);
        let often = r#"["csi_counts","values",["DeleteVolume 3 times instead of [1,2]"]]"#;
        let there = r#"["metrics","values",["failed{} must not be there"]]"#;
        assert_eq!(found(3, &["failed{} 4"]), [often, there]);
        assert_eq!(found(0, &[]).len(), 1);
    }

    #[test]
    fn metrics_that_could_not_be_read_lack_everything_recorded() {
        let unread = [("metrics".to_owned(), Value::Null)].into_iter().collect();
        assert_eq!(metric_differences(&metrics(&["a 1"]), &unread, Tries::Ruled).len(), 1);
        assert_eq!(metric_differences(&metrics(&[]), &unread, Tries::Ruled), []);
    }
}
