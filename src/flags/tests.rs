//! The command line as a whole.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::*;

fn parse_in(env: &[(&str, &str)], args: &[&str]) -> Result<Parsed, Refusal> {
    let args = std::iter::once(&"/csi-provisioner").chain(args).map(OsString::from);
    Flags::parse(args, |name| env.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into()))
}

fn parse(args: &[&str]) -> Result<Parsed, Refusal> {
    parse_in(&[("NAMESPACE", "csi"), ("POD_NAME", "p")], args)
}

fn flags(args: &[&str]) -> Flags {
    parse(args).unwrap().flags
}

fn refusal(args: &[&str]) -> (u8, String) {
    let refusal = parse(args).unwrap_err();
    (refusal.exit_code, refusal.text.lines().last().unwrap_or_default().to_owned())
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// The rows of a table, each arguments and what is said of them after `=>`.
fn rows(table: &str) -> impl Iterator<Item = (Vec<&str>, &str)> {
    table.lines().skip(1).map(|row| {
        let (args, text) = row.split_once(" =>").unwrap_or_else(|| panic!("no => in {row}"));
        (args.split(' ').collect(), text.trim_start())
    })
}

#[test]
fn defaults_are_the_originals() {
    let defaults = "csi-address=/run/csi/socket timeout=10s volume-name-prefix=pvc volume-name-uuid-length=-1 \
        retry-interval-start=1s retry-interval-max=5m worker-threads=100 cloning-protection-threads=1 \
        snapshot-orphan-sweep-interval=5m strict-topology=false immediate-topology=true default-fstype= \
        extra-create-metadata=false controller-publish-readonly=false prevent-volume-mode-conversion=true \
        enable-capacity=false capacity-threads=1 capacity-poll-interval=1m capacity-ownerref-level=1 \
        capacity-for-immediate-binding=false kube-api-burst=10 kube-api-capacity-qps=1 \
        kube-api-capacity-burst=5 node-deployment=false node-deployment-immediate-binding=true \
        node-deployment-base-delay=20s node-deployment-max-delay=60s leader-election=false \
        leader-election-namespace= leader-election-lease-duration=15s leader-election-renew-deadline=10s \
        leader-election-retry-period=5s http-endpoint= metrics-address= metrics-path=/metrics \
        enable-pprof=false v=0 logging-format=text shutdown-timeout=20s claim-protection=auto \
        claim-protection-timeout=1h";
    let command = command::command();
    for default in defaults.split_whitespace() {
        let (name, value) = default.split_once('=').unwrap();
        let flag = command.get_arguments().find(|arg| arg.get_long() == Some(name)).unwrap();
        assert_eq!(flag.get_default_values(), [value], "{name}");
    }
    let flags = flags(&["--enable-capacity"]);
    assert_eq!(flags.kubernetes.rate(), None);
    assert_eq!(flags.kubernetes.capacity_rate(), Some(RateLimit { qps: 1.0, burst: 5 }));
}

#[test]
fn flags_without_effect_are_accepted() {
    for args in [
        &["--automaxprocs"][..],
        &["--automaxprocs=false"],
        &["--log-flush-frequency=1s"],
        &["--log-text-info-buffer-size=0Ki", "--log-json-info-buffer-size=-0.0"],
        &["", "word", "--automaxprocs", "word"],
    ] {
        assert_eq!(parse(args).unwrap().warnings, Vec::<String>::new(), "{args:?}");
    }
}

#[test]
fn a_command_of_the_cli_does_not_start_the_controller() {
    for command in ["check", "explain", "release-claims", "shadow", "shadow-report", "status"] {
        let (code, text) = refusal(&[command, "--kubeconfig=k"]);
        let says = format!("{command} is a command of kubectl-csi_provisioner");
        assert!(code == 2 && text.starts_with(&says), "{text}");
    }
    // It is the value of a flag here, and a word there.
    assert!(parse(&["--kubeconfig", "release-claims"]).is_ok());
    assert!(parse(&["--kubeconfig=k", "release-claims"]).is_ok());
}

#[test]
fn of_repeated_flags_the_last_wins_and_lists_add_up() {
    let set = flags(&[
        "--timeout=1s",
        "--timeout",
        "2s",
        "--strict-topology",
        "--strict-topology=false",
        "--feature-gates=Topology=false,CrossNamespaceVolumeDataSource=true",
        "--feature-gates=Topology=true",
        "--leader-election",
        "--leader-election-labels=a:1,b:2",
        "--leader-election-labels=b:3",
        "--vmodule=",
        "--vmodule=a=5,b=1",
        "--vmodule=a=6",
    ]);
    assert_eq!(set.driver.timeout, secs(2));
    assert!(!set.provisioning.strict_topology);
    assert!(set.gates.topology && set.gates.cross_namespace_volume_data_source);
    let labels: BTreeMap<_, _> =
        set.leader_election().unwrap().labels.iter().flatten().map(|(k, v)| (&**k, &**v)).collect();
    assert_eq!(labels, BTreeMap::from([("a", "1"), ("b", "3")]));
    // In order: of those that fit a file the first counts, as in klog.
    let levels = [("a", 5), ("b", 1), ("a", 6)].map(|(file, level)| (file.to_owned(), level));
    assert_eq!(set.logging.vmodule.concat(), levels);
}

#[test]
fn what_cannot_be_parsed_ends_with_2_and_pflags_text_in_the_last_line() {
    // Of a value that one flag does not take only the reason differs.
    let values = r#"
--timeout=5 => time: missing unit in duration "5"
--leader-election-retry-period=5 => parse error
--feature-gates=Foo => malformed pair, expect string=bool
--feature-gates=A=maybe => invalid value of A: maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax
--leader-election-labels=a => malformed item in list of labels: a
--leader-election-labels=a:b:c => malformed item in list of labels: a:b:c
--leader-election-labels= => malformed item in list of labels:
--worker-threads=-1 => strconv.ParseUint: parsing "-1": invalid syntax
--strict-topology=maybe => strconv.ParseBool: parsing "maybe": invalid syntax
--leader-election=maybe => parse error
--automaxprocs=maybe => strconv.ParseBool: parsing "maybe": invalid syntax
--log-text-info-buffer-size=lots => quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
--kube-api-burst=9223372036854775808 => value out of range
--vmodule=a => "a" does not have the pattern=N format
--enable-capacity=local => strconv.ParseBool: parsing "local": invalid syntax
--claim-protection=no => must be auto, always or off"#;
    let of_values = rows(values).map(|(args, why)| {
        let (flag, value) = args[0].split_once('=').unwrap();
        (args, format!(r#"invalid argument "{value}" for "{flag}" flag: {why}"#))
    });
    let unknown = (vec!["--nosuch"], "unknown flag: --nosuch".to_owned());
    for (args, text) in of_values.chain([unknown]) {
        let refused = parse(&args).unwrap_err();
        assert!(refused.text.starts_with("Usage of /csi-provisioner:\n"));
        let last = refused.text.lines().last().unwrap();
        assert_eq!((refused.exit_code, last.trim_end()), (2, text.trim_end()), "{args:?}");
    }
    assert!(refusal(&["--leader-election-labels="]).1.ends_with("in list of labels: "));
}

#[test]
fn settings_that_contradict_end_with_the_originals_codes() {
    let table = r#"
--metrics-address=:1 --http-endpoint=:2 => 1 only one of `--metrics-address` and `--http-endpoint` can be set.
--node-deployment => 255 The NODE_NAME environment variable must be set when using --enable-node-deployment.
--logging-format=xml => 1 err="format: Invalid value: \"xml\": Unsupported log format"
--log-flush-frequency=0s => 1 flushFrequency: Invalid value: \"0s\": Must be greater than zero
--vmodule=a=1 --logging-format=json => 1 vmodule: Forbidden: Only supported for text log format
--vmodule= --vmodule=a=1 --logging-format=json => 1 vmodule: Forbidden: Only supported for text log format
--log-text-split-stream => 1 options.text.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled
--log-json-info-buffer-size=1Ki => 1 options.json.infoBufferSize: Forbidden
--log-text-info-buffer-size=0.5 => 1 options.text.infoBufferSize: Forbidden
--feature-gates=BtreeWatchCache=false => 255 feature is locked to true
--leader-election --leader-election-lease-duration=1s --leader-election-renew-deadline=2s => 2 leaseDuration must be greater than renewDeadline
--leader-election --leader-election-retry-period=10s => 2 renewDeadline must be greater than retryPeriod*JitterFactor
--leader-election --leader-election-renew-deadline=6s => 2 renewDeadline must be greater than retryPeriod*JitterFactor
--leader-election --leader-election-lease-duration=10s => 2 leaseDuration must be greater than renewDeadline
--leader-election --leader-election-lease-duration=0s => 2 leaseDuration must be greater than renewDeadline
--leader-election --leader-election-retry-period=0s => 2 retryPeriod must be greater than zero
--http-endpoint=:1 --metrics-path= => 2 it must start with /
--http-endpoint=:1 --leader-election --metrics-path=/healthz/leader-election => 2 health check
--http-endpoint=:1 --enable-pprof --metrics-path=/debug/pprof/profile => 2 the path of a profile
--http-endpoint=:1 --metrics-path=/{a} => 2 a pattern
--volume-name-uuid-length=33 => 2 use 0 to 32
--volume-name-uuid-length=-2 => 2 use 0 to 32
--worker-threads=0 => 2 use at least 1
--leader-election-type=configmaps => 1 `endpoints` or `leases`
--capacity-controller-deployment-mode=local => 2 `central` or empty"#;
    for (args, expected) in rows(table) {
        let (code, text) = expected.split_once(' ').unwrap();
        let (got, last) = refusal(&args);
        assert_eq!(got.to_string(), code, "{args:?}");
        assert!(last.contains(text), "{args:?}: {last}");
    }
}

#[test]
fn the_same_settings_are_fine_where_they_do_not_matter() {
    for args in [
        "--leader-election-lease-duration=0s",
        "--leader-election --leader-election-renew-deadline=6001ms",
        "--metrics-path=",
        "--http-endpoint=:1 --metrics-path=/healthz/leader-election",
        "--volume-name-uuid-length=0",
        "--volume-name-uuid-length=32",
        "--logging-format=json",
    ] {
        assert!(parse(&args.split(' ').collect::<Vec<_>>()).is_ok(), "{args}");
    }
}

#[test]
fn the_environment_says_where_capacity_objects_belong() {
    let capacity = |env: &[(&str, &str)], args: &[&str]| {
        parse_in(env, args).unwrap().flags.capacity().unwrap().clone()
    };
    for arg in ["--enable-capacity", "--capacity-controller-deployment-mode=central"] {
        let found = capacity(&[("NAMESPACE", "csi"), ("POD_NAME", "p")], &[arg]);
        assert_eq!((&*found.namespace, &*found.pod, found.owner_level()), ("csi", "p", Some(1)));
    }
    let unowned = capacity(&[], &["--enable-capacity", "--capacity-ownerref-level=-1"]);
    assert_eq!((&*unowned.namespace, unowned.owner_level()), ("", None));
}

#[test]
fn retired_flags_are_accepted_with_one_warning_each() {
    let retired = "--provisioner=disk.csi.example.com --enable-leader-election --enable-leader-election=true \
        --leader-election-type=leases --leader-election-type=endpoints --connection-timeout=15s \
        --connection-timeout=whatever --capacity-controller-deployment-mode=central --enable-capacity=central \
        --feature-gates=HonorPVReclaimPolicy=true --feature-gates=CSINodeInfo=true \
        --feature-gates=PreventVolumeModeConversion=true --feature-gates=HonorPVReclaimPolicy=false \
        --feature-gates=StructuredAuthorizationConfiguration=true --logtostderr --logtostderr=true \
        --alsologtostderr --stderrthreshold=0 --log_dir=/tmp --log_file=/tmp/x --log_file_max_size=1 \
        --log_backtrace_at=a:1 --add_dir_header --skip_headers --skip_log_headers --one_output";
    for arg in retired.split(' ') {
        let parsed = parse(&[arg]).unwrap();
        assert_eq!(parsed.warnings.len(), 1, "{arg}: {:?}", parsed.warnings);
        assert!(parsed.warnings[0].contains("retired"), "{arg}: {:?}", parsed.warnings);
    }
}

#[test]
fn retired_flags_go_on_meaning_what_they_meant() {
    assert!(flags(&["--enable-leader-election"]).leader_election().is_some());
    assert!(flags(&["--enable-leader-election=false"]).leader_election().is_none());
    assert!(flags(&["--capacity-controller-deployment-mode=central"]).capacity().is_some());
    assert!(flags(&["--capacity-controller-deployment-mode="]).capacity().is_none());
    assert!(flags(&["--enable-capacity=central"]).capacity().is_some());
    // A retired flag with a value of its own does not swallow the next flag's.
    assert_eq!(flags(&["--provisioner", "x", "--timeout=1s"]).driver.timeout, secs(1));
}

/// Two leaders at work is what an upgrade from v1 must not lead to.
#[test]
fn who_comes_from_endpoints_must_stop_the_old_replicas_first() {
    let warnings = |args: &[&str]| {
        let warnings = parse(args).unwrap().warnings;
        warnings.iter().filter(|warning| warning.contains("scale it to 0")).count()
    };
    assert_eq!(warnings(&["--enable-leader-election"]), 1);
    assert_eq!(warnings(&["--enable-leader-election=false"]), 0);
    assert_eq!(warnings(&["--enable-leader-election", "--leader-election-type=leases"]), 0);
    assert_eq!(warnings(&["--enable-leader-election", "--leader-election-type=endpoints"]), 1);
    assert_eq!(warnings(&["--leader-election"]), 0);
}

#[test]
fn rates_are_read_as_client_go_reads_them() {
    let rate = |args: &[&str]| flags(args).kubernetes.rate().map(|rate| (rate.qps, rate.burst));
    assert_eq!(rate(&["--kube-api-burst=50"]), None, "a burst alone is no limit");
    assert_eq!(rate(&["--kube-api-qps=5"]), Some((5.0, 10)));
    assert_eq!(rate(&["--kube-api-qps=0", "--kube-api-burst=0"]), Some((5.0, 10)));
    for none in ["-1", "inf", "nan"] {
        assert_eq!(rate(&[&format!("--kube-api-qps={none}")]), None);
    }
    assert_eq!(rate(&["--kube-api-qps=0", "--kube-api-burst=-3"]), Some((5.0, 1)));
}

/// As client-go refuses it, and by its reading: a rate of zero is none.
#[test]
fn a_rate_without_a_burst_is_refused() {
    let capacity =
        ["--enable-capacity", "--capacity-ownerref-level=-1", "--kube-api-capacity-burst=0"];
    for args in [
        &["--kube-api-burst=0"][..],
        &["--kube-api-burst=-1"],
        &["--kube-api-qps=1", "--kube-api-burst=0"],
        &capacity,
    ] {
        let refusal = parse_in(&[("NAMESPACE", "ns")], args).unwrap_err();
        assert_eq!(refusal.exit_code, 255, "{args:?}");
        assert!(refusal.text.contains("burst is required to be greater than 0"), "{args:?}");
    }
    for args in [
        &["--kube-api-qps=0", "--kube-api-burst=0"][..],
        &["--kube-api-qps=-1", "--kube-api-burst=-1"],
        &["--kube-api-capacity-burst=0"],
    ] {
        assert!(parse(args).is_ok(), "{args:?}");
    }
}

#[test]
fn idle_workers_are_warned_of() {
    let parsed = parse(&["--cloning-protection-threads=0"]).unwrap();
    assert_eq!(parsed.flags.provisioning.cloning_protection_workers, 1);
    assert_eq!(
        parsed.warnings,
        ["--cloning-protection-threads=0 would leave work undone for ever; using 1"]
    );
}

/// Arguments made of what arguments are made of.
fn argument() -> impl Strategy<Value = String> {
    let command = command::command();
    let names: Vec<String> = command
        .get_arguments()
        .filter_map(clap::Arg::get_long)
        .flat_map(|name| [format!("--{name}"), format!("--{name}=")])
        .chain(["-v", "-", "--", "word"].map(str::to_owned))
        .collect();
    let values =
        ["", "true", "5", "-1", "1h", "a=b", "a:b", "99999999999999999999", "0x", "\u{e9}"];
    (prop::sample::select(names), prop::sample::select(values.to_vec()))
        .prop_map(|(name, value)| name + value)
}

proptest! {
    #[test]
    fn whatever_is_given_is_taken_or_refused(args in prop::collection::vec(argument(), 0..5)) {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        match parse(&args) {
            Ok(parsed) => {
                prop_assert!(parsed.flags.provisioning.workers > 0);
                prop_assert!((-1..=32).contains(&parsed.flags.naming.uuid_length));
            }
            Err(refusal) => {
                prop_assert!([0, 1, 2, 255].contains(&refusal.exit_code));
                prop_assert!(!refusal.text.is_empty() && !refusal.text.ends_with('\n'));
            }
        }
    }
}

#[test]
fn the_status_page_is_off_and_without_a_host_on_loopback() {
    for (args, address) in [
        (&[][..], None),
        (&["--status-endpoint="], None),
        (&["--status-endpoint=:8090"], Some("127.0.0.1:8090")),
        (&["--status-endpoint=0.0.0.0:8090"], Some("0.0.0.0:8090")),
        (&["--status-endpoint=[::1]:8090"], Some("[::1]:8090")),
    ] {
        assert_eq!(flags(args).http.status.as_deref(), address, "{args:?}");
    }
}
