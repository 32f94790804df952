//! docs/metrics.md describes each metric as the code defines it, and no others; deploy/monitoring asks for
//! nothing else.

use std::collections::BTreeSet;

use cli::shadow::ShadowMetrics;
use csi_provisioner::metrics::{Definition, Metrics};
use regex::Regex;
use serde_json::Value;
use testkit::apiserver::serve::manifests;

use crate::shipped;

const PAGE: &str = include_str!("../../docs/metrics.md");

/// Everything that a served process with every feature has.
fn definitions() -> Vec<Definition> {
    let metrics = Metrics::new();
    metrics.serve("disk.example.com");
    metrics.capacity();
    ShadowMetrics::new(&metrics);
    metrics.definitions()
}

/// A metric's row in the page's tables.
fn row(metric: &Definition) -> String {
    let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    format!("| `{}` | {} | {} | {} |", metric.name, metric.kind, labels.join(", "), metric.help)
}

/// The names that the sources give to work queues.
fn queues() -> BTreeSet<String> {
    let sources = shipped("src");
    let call = Regex::new(r#"(?:queue|Queue::new|Queue::fair)\(\s*"([^"]*)""#).unwrap();
    let names = sources.iter().flat_map(|source| call.captures_iter(source));
    names.map(|name| name[1].to_owned()).collect()
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
    let served = Metrics::new().text();
    let series = "provisioner_suspected_leaks_total{reason=\"";
    let served: BTreeSet<_> = served
        .lines()
        .filter_map(|line| line.strip_prefix(series)?.strip_suffix("\"} 0"))
        .collect();
    assert_eq!(documented, served);
}

/// The alerts, as a Prometheus reads them.
fn rules() -> Value {
    yaml(include_str!("../../deploy/monitoring/rules.yaml"))
}

fn yaml(text: &str) -> Value {
    manifests::parse(text).unwrap().remove(0)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// All values below `value` that are called `name`.
fn values<'a>(value: &'a Value, name: &str) -> Vec<&'a str> {
    let own = value.get(name).and_then(Value::as_str);
    let below: Vec<&Value> = match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    own.into_iter().chain(below.into_iter().flat_map(|value| values(value, name))).collect()
}

/// The names of metrics in a query: what is no keyword, function, label, duration or number.
fn metric_names(query: &str) -> BTreeSet<String> {
    let labels = r#""[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(by|on|group_left)\s*\([^)]*\)|offset \w+"#;
    let bare = Regex::new(labels).unwrap().replace_all(query, " ");
    let words = Regex::new(r"[A-Za-z_][\w:]*(\s*\()?").unwrap();
    let words = words.find_iter(&bare).map(|word| word.as_str().trim_end());
    let keywords = ["and", "or", "unless", "by", "on"];
    let names = words.filter(|word| !word.ends_with('(') && !keywords.contains(word));
    // Functions and keywords before a bracket have been left out with it.
    names.map(str::to_owned).collect()
}

/// The names that a query may use: of each metric, the parts of histograms, and what the rules record.
fn queryable() -> BTreeSet<String> {
    let parts = definitions().into_iter().flat_map(|metric| match metric.kind {
        "histogram" => ["_bucket", "_count", "_sum"].map(|end| metric.name.clone() + end).to_vec(),
        _ => vec![metric.name],
    });
    parts.chain(values(&rules(), "record").into_iter().map(str::to_owned)).collect()
}

#[test]
fn rules_and_dashboard_name_only_metrics_that_exist() {
    let rules = rules();
    let dashboard = include_str!("../../deploy/monitoring/dashboard.json");
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let queryable = queryable();
    for (queries, at_least) in [(values(&rules, "expr"), 15), (values(&dashboard, "expr"), 20)] {
        assert!(queries.len() >= at_least, "{queries:?}");
        for query in queries {
            let names = metric_names(query);
            let unknown: Vec<_> = names.difference(&queryable).collect();
            assert!(!names.is_empty() && unknown.is_empty(), "{unknown:?} in {query}");
        }
    }
}

#[test]
fn the_operators_rules_are_those_of_the_file() {
    let operators = yaml(include_str!("../../deploy/monitoring/prometheusrule.yaml"));
    assert_eq!(operators["kind"], "PrometheusRule");
    assert_eq!(operators["spec"], rules());
}

/// The rules that raise alerts.
fn alerts(rules: &Value) -> Vec<&Value> {
    let groups = rules["groups"].as_array().unwrap();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    rules.filter(|rule| rule.get("alert").is_some()).collect()
}

#[test]
fn each_alert_says_what_to_do_is_on_the_page_and_has_cases() {
    let cases = include_str!("../alerts/cases.yaml");
    let rules = rules();
    assert!(alerts(&rules).len() >= 9);
    for alert in alerts(&rules) {
        let (name, annotations) = (text(&alert["alert"]), &alert["annotations"]);
        let runbook = format!("docs/troubleshooting.md#alert-{}", name.to_lowercase());
        assert_eq!(annotations["runbook_url"], runbook);
        assert!(
            ["summary", "description"].iter().all(|about| !text(&annotations[about]).is_empty())
        );
        assert!(["critical", "warning"].contains(&text(&alert["labels"]["severity"])), "{name}");
        assert!(PAGE.contains(&format!("`{name}`")), "docs/metrics.md lacks {name}");
        assert!(cases.contains(&format!("alertname=\"{name}\"")), "no case raises {name}");
    }
}

#[test]
fn the_pod_monitor_scrapes_the_port_of_the_deployment() {
    let monitor = yaml(include_str!("../../deploy/monitoring/podmonitor.yaml"));
    let deployment = yaml(include_str!("../../deploy/kubernetes/deployment.yaml"));
    let template = &deployment["spec"]["template"];
    assert_eq!(monitor["spec"]["selector"]["matchLabels"], template["metadata"]["labels"]);
    let port = &template["spec"]["containers"][0]["ports"][0]["name"];
    assert_eq!(monitor["spec"]["podMetricsEndpoints"][0]["port"], *port);
}

/// The increase of a counter misses the first count of one that did not exist before. Families with
/// `class` and those of calls appear with their first use, as in external-provisioner: for them the rules
/// also count the value of a series that is new.
#[test]
fn counters_whose_increase_raises_an_alert_start_at_zero_or_are_counted_when_new() {
    let metrics = Metrics::new();
    metrics.workqueue.queue("claims");
    let served = metrics.text();
    let rules = rules();
    let queries = values(&rules, "expr").concat();
    let increase = Regex::new(r"increase\((\w+_total|csi_\w+_count)").unwrap();
    let counters: BTreeSet<&str> =
        increase.captures_iter(&queries).map(|found| found.get(1).unwrap().as_str()).collect();
    assert!(counters.len() >= 7, "{counters:?}");
    for counter in counters {
        let is_zero = |line: &str| line.starts_with(counter) && line.ends_with(" 0");
        let own = counter.starts_with("provisioner_");
        assert!(!own || served.lines().any(is_zero), "{counter}");
        let new = format!(r"unless max_over_time\(\s*{counter}(\{{[^}}]*\}})?\[6h\] offset");
        assert!(Regex::new(&new).unwrap().is_match(&queries), "{counter}");
    }
}
