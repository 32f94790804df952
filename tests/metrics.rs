//! docs/metrics.md describes each metric as the code defines it, and no others.

// Helpers panic, as tests do.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, fs, path::Path};

use csi_provisioner::metrics::{Definition, Metrics};

const PAGE: &str = include_str!("../docs/metrics.md");

/// Everything that a served process with every feature has.
fn definitions() -> Vec<Definition> {
    let metrics = Metrics::new().unwrap();
    metrics.serve().unwrap();
    metrics.capacity().unwrap();
    metrics.definitions()
}

/// A metric's row in the page's tables.
fn row(metric: &Definition) -> String {
    let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    format!("| `{}` | {} | {} | {} |", metric.name, metric.kind, labels.join(", "), metric.help)
}

/// The sources below a directory, without files that are nothing but tests.
fn sources(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let shipped = entries.filter(|path| path.file_stem().unwrap() != "tests");
    shipped
        .flat_map(|path| {
            if path.is_dir() { sources(&path) } else { vec![fs::read_to_string(&path).unwrap()] }
        })
        .collect()
}

/// The names that the sources give to work queues.
fn queues() -> BTreeSet<String> {
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let calls = sources.iter().flat_map(|source| source.split("queue(\"").skip(1));
    calls.filter_map(|call| call.split('"').next()).map(str::to_owned).collect()
}

/// The rows of the page's tables of metrics.
fn rows() -> impl Iterator<Item = &'static str> {
    let tables = PAGE.split("\n\n").filter(|block| block.starts_with("| metric | type |"));
    tables.flat_map(|table| table.lines().skip(2))
}

#[test]
fn the_page_has_each_metric_as_the_code_has_it_and_no_other() {
    let made: BTreeSet<String> = definitions().iter().map(row).collect();
    let documented: BTreeSet<String> = rows().map(str::to_owned).collect();
    let missing: Vec<_> = made.difference(&documented).collect();
    let extra: Vec<_> = documented.difference(&made).collect();
    assert!(missing.is_empty(), "docs/metrics.md lacks:\n{missing:#?}");
    assert!(extra.is_empty(), "docs/metrics.md has what the code has not:\n{extra:#?}");
}

#[test]
fn the_page_names_each_work_queue_and_no_other() {
    let documented =
        PAGE.split("\n- ").find_map(|item| item.strip_prefix("`workqueue_…`: `name` is "));
    let quoted = documented.unwrap().split('`').skip(1).step_by(2);
    let documented: BTreeSet<String> =
        quoted.filter(|word| !word.starts_with("--")).map(str::to_owned).collect();
    assert_eq!(documented, queues());
}

#[test]
fn the_page_names_each_reason_of_a_suspected_leak_and_no_other() {
    let prefix = "`provisioner_suspected_leaks_total`: `reason` is ";
    let documented = PAGE.split("\n- ").find_map(|item| item.strip_prefix(prefix)).unwrap();
    let documented: BTreeSet<_> =
        documented.split('.').next().unwrap().split('`').skip(1).step_by(2).collect();
    let served = Metrics::new().unwrap().text();
    let series = "provisioner_suspected_leaks_total{reason=\"";
    let served: BTreeSet<_> = served
        .lines()
        .filter_map(|line| line.strip_prefix(series)?.strip_suffix("\"} 0"))
        .collect();
    assert_eq!(documented, served);
}

/// The alerts of the page.
fn rules() -> &'static str {
    PAGE.split("```yaml").nth(1).and_then(|rest| rest.split("```").next()).unwrap()
}

/// The increase of a counter misses the first count of one that did not exist before.
#[test]
fn counters_whose_increase_raises_an_alert_are_served_from_the_start() {
    let served = Metrics::new().unwrap().text();
    let counters: Vec<_> =
        rules().split("increase(").skip(1).filter_map(|rest| rest.split('[').next()).collect();
    for counter in &counters {
        let is_zero = |line: &str| line.starts_with(counter) && line.ends_with(" 0");
        assert!(served.lines().any(is_zero), "{counter}");
    }
    assert!(counters.len() >= 3, "{counters:?}");
}

#[test]
fn the_pages_rules_name_only_metrics_that_exist() {
    let names: BTreeSet<String> = definitions().into_iter().map(|metric| metric.name).collect();
    let rules = rules();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let prefixes = ["provisioner_", "controller_", "csi_sidecar_", "process_", "workqueue_"];
    let mut found = 0;
    for word in
        rules.split(|c| !is_word(c)).filter(|word| prefixes.iter().any(|p| word.starts_with(p)))
    {
        let family = ["_bucket", "_count", "_sum"].iter().find_map(|end| word.strip_suffix(end));
        assert!(names.contains(family.unwrap_or(word)) || names.contains(word), "{word}");
        found += 1;
    }
    assert!(found >= 8, "the rules were not found: {found}");
}
