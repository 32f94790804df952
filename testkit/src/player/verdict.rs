//! Whether an outcome is the expected one: the parts that must be equal, those of which only what both recordings had
//! must be there (`unstable`), the metrics, and what only an expectation by ruling says: how often a call comes, and
//! which metrics must not be there. A difference is what the reference player prints of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{outcome::Outcome, yaml};

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

/// What stands before a wait that was in vain.
pub(super) const TIMED_OUT: &str = "timed out: ";

/// What a run is expected to come to.
pub(super) struct Expected<'a> {
    /// The outcomes that are right; what is different is told of the first. Without any, all are.
    pub(super) outcomes: Vec<&'a Outcome>,
    /// Whether they are by ruling.
    pub(super) is_ruled: bool,
}

impl Expected<'_> {
    /// In what `got` differs; `tries`: how often something can have been tried in the time that the run took.
    pub(super) fn differences(&self, got: &Outcome, tries: u32) -> Vec<Value> {
        let mut found = Vec::new();
        for expected in self.outcomes.iter().rev() {
            found = differences(expected, got, self.is_ruled, tries);
            if found.is_empty() {
                break;
            }
        }
        found
    }

    /// Whether something failed oftener than it can have been tried: time does not mend that.
    pub(super) fn is_exceeded(&self, got: &Outcome, tries: u32) -> bool {
        let have = parsed(entries(got.get("metrics")));
        self.outcomes.iter().all(|expected| {
            let mut want = parsed(entries(expected.get("metrics"))).into_iter();
            want.any(|(series, value)| {
                have.get(series)
                    .is_some_and(|found| is_too_often(series, found, value, self.is_ruled, tries))
            })
        })
    }

    /// Whether a run may have this problem.
    pub(super) fn allows(&self, problem: &str) -> bool {
        let mut problems = self.outcomes.iter().flat_map(|it| problems(it.get("problems")));
        self.outcomes.is_empty() || problems.any(|known| known == problem)
    }

    /// Whether a run may have this note as its `number`th.
    pub(super) fn allows_note(&self, number: usize, note: &Value) -> bool {
        let mut notes = self.outcomes.iter().map(|it| entries(it.get("notes")).get(number));
        self.outcomes.is_empty() || notes.any(|known| known.is_none_or(|it| yaml::equal(it, note)))
    }
}

/// Compares as the reference player does.
fn differences(expected: &Outcome, got: &Outcome, ruled: bool, tries: u32) -> Vec<Value> {
    let unstable = expected.get("unstable").and_then(Value::as_array);
    let is_unstable = |part| unstable.is_some_and(|parts| parts.iter().any(|p| p == part));
    let parts = STABLE.iter().filter_map(|&part| {
        let (want, have) = (expected.get(part), got.get(part));
        match part {
            part if is_unstable(part) => lacking(part, want, have),
            "problems" => unlike(part, want.map(|it| problems(Some(it)).collect()).as_ref(), have),
            "events" if ruled => unlike(part, want, have.map(|it| in_time(expected, it)).as_ref()),
            part => unlike(part, want, have),
        }
    });
    let by_ruling = if ruled { ruled_differences(expected, got) } else { Vec::new() };
    parts.chain(metric_differences(expected, got, ruled, tries)).chain(by_ruling).collect()
}

/// The events without those that are only written if the next step of the scenario comes late.
fn in_time(expected: &Outcome, events: &Value) -> Value {
    without(entries(Some(events)), entries(expected.get("late_events"))).into()
}

fn entries(part: Option<&Value>) -> &[Value] {
    part.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The entries of `list` that are not among `known`.
fn without(list: &[Value], known: &[Value]) -> Vec<Value> {
    let is_known = |entry: &&Value| known.iter().any(|known| yaml::equal(known, entry));
    list.iter().filter(|entry| !is_known(entry)).cloned().collect()
}

/// The recorded problems, with what was waited for as this player writes it and not as Python does.
fn problems(recorded: Option<&Value>) -> impl Iterator<Item = Value> {
    entries(recorded).iter().map(|problem| {
        let waited = problem.as_str().and_then(|text| text.strip_prefix(TIMED_OUT));
        let waited = waited.and_then(|it| serde_json::from_str::<Value>(it).ok());
        waited.map_or_else(|| problem.clone(), |it| format!("{TIMED_OUT}{it}").into())
    })
}

fn lacking(part: &str, want: Option<&Value>, have: Option<&Value>) -> Option<Value> {
    let missing = without(entries(want), entries(have));
    (!missing.is_empty()).then(|| json!([part, "missing", missing]))
}

fn unlike(part: &str, want: Option<&Value>, have: Option<&Value>) -> Option<Value> {
    let (want, have) = (want.unwrap_or(&Value::Null), have.unwrap_or(&Value::Null));
    if yaml::equal(want, have) {
        return None;
    }
    if !want.is_array() {
        return Some(json!([part, want, have]));
    }
    let (want, have) = (entries(Some(want)), entries(Some(have)));
    let (missing, extra) = (without(want, have), without(have, want));
    let order = if missing.is_empty() && extra.is_empty() { "order" } else { "" };
    Some(json!([part, {"missing": missing, "extra": extra}, order]))
}

/// Every recorded series must be there, and with the recorded value, unless it counts tries ([`is_as_good`]).
fn metric_differences(expected: &Outcome, got: &Outcome, ruled: bool, tries: u32) -> Vec<Value> {
    let have = parsed(entries(got.get("metrics")));
    let want = parsed(entries(expected.get("metrics")));
    let (mut missing, mut values) = (Vec::new(), Vec::new());
    for (series, value) in want {
        match have.get(series) {
            None => missing.push(series),
            Some(found) if *found == value || is_as_good(series, found, value, ruled, tries) => {}
            Some(found) => values.push(format!("{series} {found} instead of {value}")),
        }
    }
    let missing = (!missing.is_empty()).then(|| json!(["metrics", "missing", missing]));
    missing.into_iter().chain(found("metrics", &values)).collect()
}

fn found(part: &str, values: &[String]) -> Option<Value> {
    (!values.is_empty()).then(|| json!([part, "values", values]))
}

/// What a recording leaves open and a ruling does not: `csi_counts` are bounds for the methods named there, and
/// `absent_metrics` are series that must not be there.
fn ruled_differences(expected: &Outcome, got: &Outcome) -> Vec<Value> {
    let bounds = expected.get("csi_counts").and_then(Value::as_object).into_iter().flatten();
    let outside = bounds.filter_map(|(method, bounds)| {
        let bound = |place: usize| bounds.get(place).and_then(Value::as_u64);
        let calls = got.get("csi_counts").and_then(|counts| counts.get(method)?.as_u64());
        let calls = calls.unwrap_or(0);
        let inside = bound(0).is_some_and(|least| least <= calls)
            && bound(1).is_some_and(|most| calls <= most);
        (!inside).then(|| format!("{method} {calls} times instead of {bounds}"))
    });
    let have = parsed(entries(got.get("metrics")));
    let absent = entries(expected.get("absent_metrics")).iter().filter_map(Value::as_str);
    let there = absent.filter(|series| have.contains_key(series));
    let there: Vec<_> = there.map(|series| format!("{series} must not be there")).collect();
    let outside: Vec<_> = outside.collect();
    found("csi_counts", &outside).into_iter().chain(found("metrics", &there)).collect()
}

/// Lines as series and value.
fn parsed(lines: &[Value]) -> BTreeMap<&str, &str> {
    lines.iter().filter_map(Value::as_str).filter_map(|line| line.rsplit_once(' ')).collect()
}

/// Whether a series of tries that counts `found` is as good as one that counts `recorded`: there were
/// any in both, and failures do not come too often.
fn is_as_good(series: &str, found: &str, recorded: &str, ruled: bool, tries: u32) -> bool {
    let both_tried = (number(found) > 0.0) == (number(recorded) > 0.0);
    let is_call = series.starts_with("csi_sidecar_operations_seconds_count");
    let as_often = !is_too_often(series, found, recorded, ruled, tries);
    both_tried && (is_call || is_failure(series) && as_often)
}

/// Whether failures come much oftener than the reference's and, where the run takes longer on a busy machine, than its
/// back-off allows, unless a ruling says that they are tried otherwise: an alert rests on them.
fn is_too_often(series: &str, found: &str, recorded: &str, ruled: bool, tries: u32) -> bool {
    let recorded = number(recorded);
    // Back-offs of the same length still end a try sooner or later.
    let most = (2.0 * recorded + 2.0).max(recorded * f64::from(tries));
    is_failure(series) && !ruled && number(found) > most
}

fn is_failure(series: &str) -> bool {
    series.contains("_failed_total")
}

fn number(value: &str) -> f64 {
    value.parse().unwrap_or(f64::INFINITY)
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
        assert_eq!(metric_differences(&expected, &same, false, 1), [Value::Null; 0]);
        let risen = metrics(&["b_failed_total 11"]);
        let found = |ruled, tries| {
            metric_differences(&metrics(&["b_failed_total 4"]), &risen, ruled, tries)
        };
        assert_eq!(
            found(false, 2),
            [json!(["metrics", "values", ["b_failed_total 11 instead of 4"]])]
        );
        assert_eq!(found(true, 2), [Value::Null; 0]);
        assert_eq!(found(false, 3), [Value::Null; 0], "in the time for three tries each");
        let recorded = metrics(&["b_failed_total 4"]);
        let is_exceeded = |is_ruled, tries| {
            Expected { outcomes: vec![&recorded], is_ruled }.is_exceeded(&risen, tries)
        };
        assert!(is_exceeded(false, 2) && !is_exceeded(false, 3) && !is_exceeded(true, 2));
        let other = metrics(&["a_total{x=\"1 2\"} 3", "b_failed_total 0", "c 0"]);
        assert_eq!(
            metric_differences(&expected, &other, false, 1),
            [
                json!(["metrics", "missing", [tries]]),
                json!([
                    "metrics",
                    "values",
                    ["a_total{x=\"1 2\"} 3 instead of 2", "b_failed_total 0 instead of 4"]
                ]),
            ]
        );
    }

    #[test]
    fn a_ruling_bounds_calls_forbids_metrics_and_lets_a_late_event_be_there() {
        let expected = json!({
            "csi_counts": {"DeleteVolume": [1, 2]}, "absent_metrics": ["failed{}"],
            "events": ["a"], "late_events": ["b"], "metrics": ["x 1"]
        });
        let often = r#"["csi_counts","values",["DeleteVolume 3 times instead of [1,2]"]]"#;
        let never = r#"["csi_counts","values",["DeleteVolume 0 times instead of [1,2]"]]"#;
        let there = r#"["metrics","values",["failed{} must not be there"]]"#;
        let unread = r#"["metrics","missing",["x"]]"#;
        let other = r#"["events",{"extra":["c"],"missing":[]},""]"#;
        let lost = r#"["events",{"extra":[],"missing":["a"]},""]"#;
        for (calls, events, metrics, wanted) in [
            (1, json!(["a"]), json!(["x 1", "other{} 1"]), &[][..]),
            (2, json!(["a", "b"]), json!(["x 1"]), &[]),
            (3, json!(["a"]), json!(["x 1", "failed{} 4"]), &[often, there]),
            (0, json!(["a", "c"]), json!(["x 1"]), &[other, never]),
            (1, json!(["b"]), Value::Null, &[lost, unread]),
        ] {
            let counts = json!({"DeleteVolume": calls, "Probe": 9});
            let got = json!({"csi_counts": counts, "events": events, "metrics": metrics});
            let [want, have] = [&expected, &got].map(|it| it.as_object().unwrap());
            let found = differences(want, have, true, 1);
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, wanted, "{got}");
        }
    }
}
