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
fn families_with_labels_are_absent_until_first_used_unless_alerts_use_them() {
    let text = Metrics::new().text();
    let is_alerted = |line: &str| line.starts_with("provisioner_suspected_leaks_total{");
    let names = text.lines().filter(|line| !line.starts_with('#') && !is_alerted(line));
    let without_labels = [
        "provisioner_oldest_claim_age_seconds 0",
        "provisioner_unfollowed_records_total 0",
        "provisioner_volumes_waiting_for_detach 0",
    ];
    assert_eq!(names.collect::<Vec<_>>(), without_labels);
}

/// `increase()` ignores the first count of a series that begins with it.
#[test]
fn counters_that_alerts_use_start_at_zero() {
    let series = |family: &str, label: &str, values: &[&str]| -> Vec<String> {
        values.iter().map(|value| format!("{family}{{{label}=\"{value}\"}} 0")).collect()
    };
    let reasons = [
        "closed_by_errors",
        "let_go",
        "node_given_back",
        "node_gone",
        "protection_timeout",
        "superseded",
        "topology",
        "unusable",
    ];
    let metrics = Metrics::new();
    metrics.workqueue.queue("claims");
    let expected = [
        series("provisioner_suspected_leaks_total", "reason", &reasons),
        series("provisioner_panics_total", "queue", &["claims"]),
    ]
    .concat();
    let lines: Vec<&str> = expected.iter().map(String::as_str).collect();
    assert_lines(&metrics, &lines);
}

#[test]
fn names_and_labels_are_those_of_external_provisioner() {
    let metrics = Metrics::new();
    let create = "/csi.v1.Controller/CreateVolume";
    metrics.csi.observe("d", create, "OK", Duration::from_millis(150));
    metrics.controller.provisioned("sc", "", Duration::from_millis(1));
    metrics.controller.provision_failed("sc", "VolumeSnapshot");
    metrics.controller.deleted("sc", Duration::from_millis(1));
    metrics.workqueue.queue("claims").adds.inc();
    metrics.leader.leads(true);
    assert_lines(
        &metrics,
        &[
            "# HELP csi_sidecar_operations_seconds [ALPHA] Container Storage Interface operation duration with gRPC error code status total",
            "csi_sidecar_operations_seconds_bucket{driver_name=\"d\",grpc_status_code=\"OK\",method_name=\"/csi.v1.Controller/CreateVolume\",le=\"0.1\"} 0",
            "csi_sidecar_operations_seconds_bucket{driver_name=\"d\",grpc_status_code=\"OK\",method_name=\"/csi.v1.Controller/CreateVolume\",le=\"0.25\"} 1",
            "controller_persistentvolumeclaim_provision_total{class=\"sc\",source=\"\"} 1",
            "controller_persistentvolumeclaim_provision_failed_total{class=\"sc\",source=\"VolumeSnapshot\"} 1",
            "controller_persistentvolume_delete_duration_seconds_count{class=\"sc\"} 1",
            "workqueue_adds_total{name=\"claims\"} 1",
            "leader_election_master_status{name=\"\"} 1",
        ],
    );
}

#[test]
fn the_work_queues_buckets_are_those_of_external_provisioner() {
    let metrics = Metrics::new();
    metrics.workqueue.queue("claims");
    let text = metrics.text();
    let prefix = "workqueue_queue_duration_seconds_bucket{name=\"claims\",le=\"";
    let bounds: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix(prefix)?.strip_suffix("\"} 0")).collect();
    // As Go's ExponentialBuckets(10e-9, 10, 10) multiplies, with its rounding; spelled without exponents.
    assert_eq!(
        bounds,
        [
            "0.00000001",
            "0.0000001",
            "0.000001",
            "0.000009999999999999999",
            "0.00009999999999999999",
            "0.001",
            "0.01",
            "0.1",
            "1",
            "10",
            "+Inf"
        ]
    );
}

#[test]
fn with_migration_only_calls_with_the_label_are_served() {
    let metrics = Metrics::new();
    metrics.csi.observe("d", "m", "OK", Duration::ZERO);
    // A driver that took over from no plugin has no migrated calls.
    metrics.csi.migrated(true).observe("d", "m", "OK", Duration::ZERO);
    let migrating = metrics.csi.with_migration();
    migrating.observe("d", "m", "OK", Duration::ZERO);
    migrating.migrated(true).observe("d", "m", "Internal", Duration::ZERO);
    let text = metrics.text();
    let counts = text.lines().filter(|line| line.contains("_count"));
    assert_eq!(
        counts.collect::<Vec<_>>(),
        [
            "csi_sidecar_operations_seconds_count{driver_name=\"d\",grpc_status_code=\"Internal\",method_name=\"m\",migrated=\"true\"} 1",
            "csi_sidecar_operations_seconds_count{driver_name=\"d\",grpc_status_code=\"OK\",method_name=\"m\",migrated=\"false\"} 1",
        ]
    );
}

#[test]
fn a_call_is_in_flight_until_it_is_dropped() {
    let metrics = Metrics::new();
    let (first, second) = (metrics.csi.begin("m"), metrics.csi.begin("m"));
    assert_lines(&metrics, &["provisioner_csi_calls_in_flight{method_name=\"m\"} 2"]);
    drop((first, second));
    assert_lines(&metrics, &["provisioner_csi_calls_in_flight{method_name=\"m\"} 0"]);
}

#[test]
fn missing_permissions_replace_those_set_before() {
    let metrics = Metrics::new();
    let missing = |verb| [verb, "", "secrets"];
    metrics.api.missing_permissions([missing("get"), missing("list")]);
    metrics.api.missing_permissions([missing("get")]);
    assert_lines(
        &metrics,
        &["provisioner_missing_permissions{group=\"\",resource=\"secrets\",verb=\"get\"} 1"],
    );
    assert!(!metrics.text().contains("verb=\"list\""));
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
fn the_driver_is_a_label_of_the_build() {
    let metrics = Metrics::new();
    metrics.serve("disk.example.com");
    let version = env!("CARGO_PKG_VERSION");
    let line = format!(
        "provisioner_build_info{{driver_name=\"disk.example.com\",version=\"{version}\"}} 1"
    );
    assert_lines(&metrics, &[&line]);
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

#[test]
fn our_own_names_have_a_prefix() {
    let metrics = Metrics::new();
    metrics.serve("disk.example.com");
    let prefixes = [
        "controller_persistentvolume",
        "csi_sidecar_",
        "leader_election_",
        "process_",
        "promhttp_",
        "workqueue_",
    ];
    for definition in metrics.definitions() {
        let known = prefixes.iter().any(|prefix| definition.name.starts_with(prefix));
        assert!(known || definition.name.starts_with("provisioner_"), "{}", definition.name);
    }
}
