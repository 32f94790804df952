//! The Prometheus text format 0.0.4, as Go's client writes it.
//!
//! Numbers are formatted as in Go: dashboards and alerts use labels such as `le="1e-08"`, which the
//! encoder of the crate `prometheus` would write as `0.00000001`. Families are sorted by name, labels by
//! name with `le` last. Texts are escaped as the format requires.

use std::fmt::Write as _;

use prometheus::proto::{Histogram, LabelPair, MetricFamily, MetricType};

/// A scrape's body.
pub(super) fn encode(families: &[MetricFamily]) -> String {
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.get_metric().is_empty()) {
        write_family(&mut text, family);
    }
    text
}

fn write_family(text: &mut String, family: &MetricFamily) {
    let (name, kind) = (family.name(), family.get_field_type());
    let _ = writeln!(text, "# HELP {name} {}", escaped(family.help(), false));
    let _ = writeln!(text, "# TYPE {name} {}", format!("{kind:?}").to_lowercase());
    for metric in family.get_metric() {
        let labels = metric.get_label();
        match kind {
            MetricType::HISTOGRAM => write_histogram(text, name, labels, metric.get_histogram()),
            MetricType::COUNTER => {
                sample(text, name, labels, None, metric.get_counter().get_value());
            }
            _ => sample(text, name, labels, None, metric.get_gauge().get_value()),
        }
    }
}

/// Counts are exact up to 2^53, as in Go's client, which converts them too.
#[allow(clippy::cast_precision_loss)]
fn write_histogram(text: &mut String, name: &str, labels: &[LabelPair], histogram: &Histogram) {
    let count = histogram.get_sample_count() as f64;
    let bucket = format!("{name}_bucket");
    for each in histogram.get_bucket().iter().filter(|each| each.upper_bound().is_finite()) {
        sample(text, &bucket, labels, Some(each.upper_bound()), each.cumulative_count() as f64);
    }
    sample(text, &bucket, labels, Some(f64::INFINITY), count);
    sample(text, &format!("{name}_sum"), labels, None, histogram.get_sample_sum());
    sample(text, &format!("{name}_count"), labels, None, count);
}

fn sample(text: &mut String, name: &str, labels: &[LabelPair], le: Option<f64>, value: f64) {
    text.push_str(name);
    let named = labels.iter().map(|label| (label.name(), escaped(label.value(), true)));
    let mut before = '{';
    for (name, value) in named.chain(le.map(|le| ("le", number(le)))) {
        let _ = write!(text, "{before}{name}=\"{value}\"");
        before = ',';
    }
    if before == ',' {
        text.push('}');
    }
    let _ = writeln!(text, " {}", number(value));
}

fn escaped(text: &str, quotes: bool) -> String {
    let text = text.replace('\\', r"\\").replace('\n', r"\n");
    if quotes { text.replace('"', "\\\"") } else { text }
}

/// A number as Go's `strconv.FormatFloat(x, 'g', -1, 64)` writes it: the shortest digits that identify
/// it, with an exponent below 1e-4 and from 1e6 on.
fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    // Rust writes the shortest digits as well; only the exponent's form differs.
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) || value == 0.0 {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests;
