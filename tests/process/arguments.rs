//! The arguments that manifests in the field give are understood, and what is retired is said. And every flag of v1.6.0
//! is accepted, as docs/flags.md says.

use csi_provisioner::flags::{Flags, Parsed};

/// What manifests in the field give.
const FIELD: &str = include_str!("../fixtures/manifests.txt");

fn parsed<'a>(arguments: impl Iterator<Item = &'a str>) -> Parsed {
    let words = ["csi-provisioner"].into_iter().chain(arguments).map(Into::into);
    Flags::parse(words, |_| None).unwrap_or_else(|refusal| panic!("{refusal:?}"))
}

#[test]
fn manifests_in_the_field_elect_a_leader_and_hear_of_what_is_retired() {
    let manifests = FIELD.split("\n\n").skip(1);
    assert_eq!(manifests.clone().count(), 16);
    for manifest in manifests {
        let [of, arguments, retired] = manifest.lines().collect::<Vec<_>>().try_into().unwrap();
        let retired = retired.strip_prefix("retired:").unwrap().split_whitespace();
        let filled = arguments.replace("$(POD_IP)", "10.0.0.1");
        let Parsed { flags, mut warnings } = parsed(filled.split_whitespace());
        let election = flags.leader_election().unwrap_or_else(|| panic!("{of}: nobody leads"));
        let namespace = arguments.contains("=rook-ceph").then_some("rook-ceph");
        assert_eq!(election.namespace.as_deref(), namespace, "{of}");
        warnings.retain(|warning| warning.contains(" is retired"));
        assert_eq!(warnings.len(), retired.clone().count(), "{of}: {warnings:#?}");
        for retired in retired {
            let warned = warnings.iter().any(|line| names(line, retired));
            assert!(warned, "{of}: nothing about {retired} in {warnings:#?}");
        }
    }
}

/// Whether the line is about this flag or gate, and not one whose name only begins like it.
fn names(line: &str, retired: &str) -> bool {
    line.split_once(retired).is_some_and(|(_, rest)| rest.starts_with(' '))
}

/// Every flag of v1.6.0, but for `--version`, which ends at once.
const V1_6_0: [&str; 32] = [
    "--master=https://10.0.0.1",
    "--kubeconfig=/etc/kubeconfig",
    "--csi-address=/run/csi/socket",
    "--connection-timeout=10s",
    "--volume-name-prefix=pvc",
    "--volume-name-uuid-length=10",
    "--retry-interval-start=1s",
    "--retry-interval-max=5m",
    "--worker-threads=100",
    "--cloning-protection-threads=1",
    "--timeout=10s",
    "--provisioner=rbd.csi.ceph.com",
    "--enable-leader-election",
    "--leader-election-type=leases",
    "--leader-election-namespace=default",
    "--strict-topology",
    "--extra-create-metadata",
    "--metrics-address=:8080",
    "--metrics-path=/metrics",
    "--feature-gates=Topology=true",
    "--v=5",
    "--vmodule=controller=5",
    "--logtostderr",
    "--alsologtostderr",
    "--stderrthreshold=2",
    "--log_dir=/tmp",
    "--log_file=/tmp/log",
    "--log_file_max_size=1800",
    "--add_dir_header",
    "--skip_headers",
    "--skip_log_headers",
    "--log_backtrace_at=controller.go:1",
];

#[test]
fn every_flag_of_v1_6_0_is_accepted_and_those_that_are_gone_stand_on_the_page() {
    let page = include_str!("../../docs/flags.md");
    for argument in V1_6_0 {
        let parsed = parsed([argument].into_iter());
        let flag = argument.split('=').next().unwrap();
        let retired = format!("flag {flag} is retired");
        if parsed.warnings.iter().any(|warning| warning.contains(&retired)) {
            assert!(page.contains(&format!("`{flag}`")), "docs/flags.md does not name {flag}");
        }
    }
}
