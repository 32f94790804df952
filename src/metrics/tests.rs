use std::time::Duration;

use super::*;

/// Whether a scrape has each of these lines.
fn assert_lines(metrics: &Metrics, lines: &[&str]) {
    let text = metrics.text();
    for line in lines {
        assert!(text.lines().any(|l| l == *line), "missing: {line}\nin:\n{text}");
    }
}

#[test]
fn the_work_queues_buckets_are_those_of_external_provisioner() {
    let metrics = Metrics::new();
    metrics.workqueue.queue("claims");
    let text = metrics.text();
    let prefix = "workqueue_queue_duration_seconds_bucket{name=\"claims\",le=\"";
    let bounds = text.lines().filter_map(|line| line.strip_prefix(prefix)?.strip_suffix("\"} 0"));
    // As Go's ExponentialBuckets(10e-9, 10, 10) multiplies, with its rounding; spelled without exponents.
    let expected = "0.00000001 0.0000001 0.000001 0.000009999999999999999 0.00009999999999999999 \
                    0.001 0.01 0.1 1 10 +Inf";
    assert_eq!(bounds.collect::<Vec<_>>().join(" "), expected);
}

#[test]
fn gauges_are_refreshed_before_each_scrape() {
    let metrics = Metrics::new();
    let controller = metrics.controller.clone();
    let scrapes = std::sync::atomic::AtomicUsize::new(0);
    metrics.before_scrape(move || {
        let waiting = scrapes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let oldest = Duration::from_millis(1500);
        let mut census = Census { oldest, ..Census::default() };
        census.by_state.extend([("waiting", waiting), ("saving", 7)]);
        controller.in_work(&census);
    });
    assert_lines(&metrics, &["provisioner_claims{state=\"waiting\"} 0"]);
    assert_lines(
        &metrics,
        &[
            "provisioner_claims{state=\"waiting\"} 1",
            "provisioner_claims{state=\"in_flight\"} 0",
            "provisioner_claims{state=\"background\"} 0",
            "provisioner_claims{state=\"saving\"} 7",
            "provisioner_oldest_claim_age_seconds 1.5",
        ],
    );
}

#[test]
fn overdue_claims_are_counted_by_class_and_replace_those_set_before() {
    let metrics = Metrics::new();
    metrics.controller.class_exists("fast", true);
    let in_work = |overdue: &[(&str, usize)]| {
        let overdue = overdue.iter().map(|(class, count)| ((*class).to_owned(), *count));
        metrics.controller.in_work(&Census { overdue: overdue.collect(), ..Census::default() });
    };
    in_work(&[("slow", 1)]);
    (0..300).for_each(|n| metrics.controller.provision_failed(&format!("wrong-{n}"), ""));
    in_work(&[("fast", 2), ("no-place-left", 3), ("nor-here", 4)]);
    assert_lines(
        &metrics,
        &[
            "provisioner_overdue_claims{class=\"fast\"} 2",
            "provisioner_overdue_claims{class=\"unknown\"} 7",
        ],
    );
    assert!(!metrics.text().contains("provisioner_overdue_claims{class=\"slow\"}"));
}

#[test]
fn scrapes_are_counted_as_gos_client_counts_them() {
    let metrics = Metrics::new();
    let scrapes = metrics.serve("disk.example.com");
    let during = scrapes.count(|| metrics.text());
    assert!(during.contains("promhttp_metric_handler_requests_in_flight 1\n"));
    assert_lines(
        &metrics,
        &[
            "promhttp_metric_handler_requests_in_flight 0",
            "promhttp_metric_handler_requests_total{code=\"200\"} 1",
            "promhttp_metric_handler_requests_total{code=\"500\"} 0",
        ],
    );
}
