//! The process itself, as Go's client describes it, read from /proc at each scrape.
//!
//! A value that cannot be read is omitted, not zero. There are no metrics of Go's runtime (`go_*`).

use std::fs;

use prometheus::{CounterVec, GaugeVec, Opts};

use super::Metrics;

/// `driver` is the name of the CSI driver.
pub(super) fn register(metrics: &Metrics, driver: &str) {
    register_figures(metrics);
    let build = metrics.families.int_gauge(
        "provisioner_build_info",
        "The running version and the name of the CSI driver, as labels; always 1.",
        &["version", "driver_name"],
    );
    build.with_label_values(&[env!("CARGO_PKG_VERSION"), driver]).set(1);
}

/// The figures of Go's client.
#[rustfmt::skip] // one line a figure: it is a table
fn register_figures(metrics: &Metrics) {
    let families = &metrics.families;
    let counter = |name, help| families.register("counter", CounterVec::new(Opts::new(name, help), &[]));
    let gauge = |name, help| families.gauge(name, help, &[]);
    let cpu = counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.");
    let received = counter("process_network_receive_bytes_total", "Number of bytes received by the process over the network.");
    let sent = counter("process_network_transmit_bytes_total", "Number of bytes sent by the process over the network.");
    let files = gauge("process_open_fds", "Number of open file descriptors.");
    let max_files = gauge("process_max_fds", "Maximum number of open file descriptors.");
    let memory = gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.");
    let max_memory = gauge("process_virtual_memory_max_bytes", "Maximum amount of virtual memory available in bytes.");
    let resident = gauge("process_resident_memory_bytes", "Resident memory size in bytes.");
    let started = gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.");
    metrics.before_scrape(move || {
        let (stat, network) = (Stat::read(&read("self/stat")), octets(&read("self/net/netstat")));
        let (stat, limits) = (stat.as_ref(), read("self/limits"));
        count(&cpu, stat.map(|it| it.cpu_seconds));
        count(&received, network.map(|(received, _)| received));
        count(&sent, network.map(|(_, sent)| sent));
        set(&files, open_files());
        set(&max_files, limit(&limits, "Max open files"));
        set(&memory, stat.map(|it| it.virtual_bytes));
        set(&max_memory, limit(&limits, "Max address space"));
        set(&resident, stat.map(|it| it.resident_bytes));
        set(&started, stat.and_then(|it| Some(boot_time(&read("stat"))? + it.started_seconds)));
    });
}

/// Sets a counter to the kernel's count.
fn count(counter: &CounterVec, value: Option<f64>) {
    counter.reset();
    if let Some(value) = value {
        counter.with_label_values::<&str>(&[]).inc_by(value);
    }
}

fn set(gauge: &GaugeVec, value: Option<f64>) {
    gauge.reset();
    if let Some(value) = value {
        gauge.with_label_values::<&str>(&[]).set(value);
    }
}

/// The directory being read is one of the files, as in Go's client.
fn open_files() -> Option<f64> {
    fs::read_dir("/proc/self/fd").ok().map(|files| float(files.count() as u64))
}

/// A file below /proc; empty where it cannot be read.
fn read(path: &str) -> String {
    fs::read_to_string(format!("/proc/{path}")).unwrap_or_default()
}

/// The content of `/proc/self/stat`.
#[derive(Debug, Clone, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    /// Seconds from boot to the start of the process.
    started_seconds: f64,
    virtual_bytes: f64,
    resident_bytes: f64,
}

impl Stat {
    /// Reads proc(5)'s format; the program's name in brackets may contain any character.
    fn read(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        // proc(5) counts from 1, and the third field is the first one after the name.
        let field = |number: usize| fields.get(number - 3)?.parse().ok().map(float);
        let ticks = float(rustix::param::clock_ticks_per_second());
        let page = float(rustix::param::page_size() as u64);
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / ticks,
            started_seconds: field(22)? / ticks,
            virtual_bytes: field(23)?,
            resident_bytes: field(24)? * page,
        })
    }
}

/// When the machine was booted, in seconds since 1970, from `/proc/stat`.
fn boot_time(text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok()).map(float)
}

/// The soft limit in `/proc/self/limits` of that name; `unlimited` is the largest number, as in Go's
/// client.
fn limit(text: &str, name: &str) -> Option<f64> {
    let soft = text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?;
    if soft == "unlimited" { Some(float(u64::MAX)) } else { soft.parse().ok().map(float) }
}

/// Bytes received and sent, from `/proc/self/net/netstat`: of the whole network namespace, which
/// in a pod is the pod.
fn octets(text: &str) -> Option<(f64, f64)> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let value = |name: &str| {
        let mut columns = names.split_whitespace().zip(values.split_whitespace());
        columns.find(|(column, _)| *column == name)?.1.parse().ok().map(float)
    };
    Some((value("InOctets")?, value("OutOctets")?))
}

/// Go's client counts in floating point as well.
#[allow(clippy::cast_precision_loss)]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use prometheus::proto::MetricFamily;

    use super::*;

    #[test]
    fn a_stat_line_is_read_from_the_last_bracket_on() {
        let stat =
            "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 3 0 500 4096000 25 184467";
        let page = float(rustix::param::page_size() as u64);
        let expected = Stat {
            cpu_seconds: 2.0,
            started_seconds: 5.0,
            virtual_bytes: 4_096_000.0,
            resident_bytes: 25.0 * page,
        };
        assert_eq!(rustix::param::clock_ticks_per_second(), 100);
        assert_eq!(Stat::read(stat), Some(expected));
        for broken in
            ["", "7 (a", "7 (a) S 1", "7 (a) S x x x x x x x x x x x x x x x x x x x x x x"]
        {
            assert_eq!(Stat::read(broken), None, "{broken}");
        }
    }

    #[test]
    fn limits_are_the_soft_ones() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            1024                 1048576              files\n\
                      Max address space         unlimited            unlimited            bytes\n";
        assert_eq!(limit(limits, "Max open files"), Some(1024.0));
        assert_eq!(limit(limits, "Max address space"), Some(18_446_744_073_709_551_615.0));
        assert_eq!(limit(limits, "Max niceness"), None);
    }

    #[test]
    fn boot_time_and_octets_are_found_by_name() {
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_000.0));
        assert_eq!(boot_time(""), None);
        let netstat = "TcpExt: A B\nTcpExt: 1 2\nIpExt: X InOctets OutOctets\nIpExt: 9 10 11\n";
        assert_eq!(octets(netstat), Some((10.0, 11.0)));
        assert_eq!(octets("IpExt: InOctets\nIpExt: 1\n"), None);
        assert_eq!(octets(""), None);
    }

    #[test]
    fn all_values_of_this_process_can_be_read() {
        let metrics = Metrics::new();
        let others = metrics.definitions().len();
        register(&metrics, "disk.example.com");
        metrics.text();
        let served = metrics.families.registry.gather();
        let is_ours =
            |it: &&MetricFamily| it.name().starts_with("process_") || it.name().ends_with("_info");
        assert_eq!(served.iter().filter(is_ours).count(), metrics.definitions().len() - others);
        let value = |name: &str| {
            let family = served.iter().find(|family| family.name() == name).unwrap();
            let metric = &family.get_metric()[0];
            metric.get_gauge().get_value() + metric.get_counter().get_value()
        };
        assert!(value("process_resident_memory_bytes") > 100_000.0);
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0);
        // Later than this was written, and not in the future by more than a clock's error.
        assert!(value("process_start_time_seconds") > 1.7e9);
    }
}
