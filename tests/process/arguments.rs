//! The arguments that manifests in the field give start the real binary: it leads, says what it
//! no longer listens to, and ends in order. And every flag of v1.6.0 is accepted, as
//! docs/flags.md says.

use std::path::Path;

use csi_provisioner::flags::Flags;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use serde_json::json;
use support::process::{Provisioner, Surroundings};
use testkit::{control_plane::client_of, ports::free_port};

const DRIVER: &str = "rbd.csi.ceph.com";

/// The Lease of that driver.
const LEASE: &str = "rbd-csi-ceph-com";

/// What one manifest gives.
struct Manifest {
    /// Whose, and of which releases.
    of: &'static str,
    arguments: &'static str,
    /// What is answered with a warning.
    retired: &'static [&'static str],
}

const OLD_ELECTION: &[&str] = &["--enable-leader-election", "--leader-election-type"];
const RECLAIM_POLICY: &[&str] = &["HonorPVReclaimPolicy"];

/// Each distinct set of arguments, where the driver reports no topology. `$(…)` is the container's
/// environment, as in the manifests; what a template leaves to its user stands with its default.
const FIELD: [Manifest; 16] = [
    Manifest {
        of: "ceph-csi 2.1 to 3.1, both drivers",
        arguments: "--csi-address=$(ADDRESS) --v=5 --timeout=150s --retry-interval-start=500ms \
            --enable-leader-election=true --leader-election-type=leases --feature-gates=Topology=true",
        retired: OLD_ELECTION,
    },
    Manifest {
        of: "ceph-csi 2.1 to 3.1, charts",
        arguments: "--csi-address=$(ADDRESS) --v=5 --timeout=60s --enable-leader-election=true \
            --leader-election-type=leases --retry-interval-start=500ms",
        retired: OLD_ELECTION,
    },
    Manifest {
        of: "ceph-csi 3.2, rbd",
        arguments: "--csi-address=$(ADDRESS) --v=5 --timeout=150s --retry-interval-start=500ms \
            --leader-election=true --feature-gates=Topology=false --default-fstype=ext4",
        retired: &[],
    },
    Manifest {
        of: "ceph-csi 3.3 to 3.6, cephfs",
        arguments: "--csi-address=$(ADDRESS) --v=5 --timeout=150s --leader-election=true \
            --retry-interval-start=500ms --feature-gates=Topology=false --extra-create-metadata=true",
        retired: &[],
    },
    Manifest {
        of: "ceph-csi 3.3 to 3.6, chart of rbd, topology.enabled",
        arguments: "--csi-address=$(ADDRESS) --v=5 --timeout=60s --leader-election=true \
            --retry-interval-start=500ms --default-fstype=ext4 --extra-create-metadata=true \
            --feature-gates=Topology=true",
        retired: &[],
    },
    Manifest {
        of: "ceph-csi 3.7 to 3.11, rbd",
        arguments: "--csi-address=$(ADDRESS) --v=1 --timeout=150s --retry-interval-start=500ms \
            --leader-election=true --feature-gates=Topology=false \
            --feature-gates=HonorPVReclaimPolicy=true --prevent-volume-mode-conversion=true \
            --default-fstype=ext4 --extra-create-metadata=true",
        retired: RECLAIM_POLICY,
    },
    Manifest {
        of: "ceph-csi 3.12, rbd",
        arguments: "--csi-address=$(ADDRESS) --v=1 --timeout=150s --retry-interval-start=500ms \
            --leader-election=true --feature-gates=HonorPVReclaimPolicy=true \
            --prevent-volume-mode-conversion=true --default-fstype=ext4 \
            --extra-create-metadata=true --immediate-topology=false",
        retired: RECLAIM_POLICY,
    },
    Manifest {
        of: "ceph-csi 3.12, cephfs",
        arguments: "--csi-address=$(ADDRESS) --v=1 --timeout=150s --leader-election=true \
            --retry-interval-start=500ms --feature-gates=HonorPVReclaimPolicy=true \
            --prevent-volume-mode-conversion=true --extra-create-metadata=true",
        retired: RECLAIM_POLICY,
    },
    Manifest {
        of: "ceph-csi after 3.12, rbd",
        arguments: "--csi-address=$(ADDRESS) --v=1 --timeout=150s --retry-interval-start=500ms \
            --leader-election=true --feature-gates=HonorPVReclaimPolicy=true \
            --prevent-volume-mode-conversion=true --default-fstype=ext4 \
            --extra-create-metadata=true --immediate-topology=false --http-endpoint=$(POD_IP):8090",
        retired: RECLAIM_POLICY,
    },
    Manifest {
        of: "ceph-csi after 3.12, chart of rbd",
        arguments: "--csi-address=$(ADDRESS) --v=1 --timeout=60s --leader-election=true \
            --retry-interval-start=500ms --default-fstype=ext4 --extra-create-metadata=true \
            --feature-gates=HonorPVReclaimPolicy=true --prevent-volume-mode-conversion=true \
            --immediate-topology=false --http-endpoint=$(POD_IP):8090",
        retired: RECLAIM_POLICY,
    },
    Manifest {
        of: "ceph-csi after 3.12, chart of cephfs",
        arguments: "--csi-address=$(ADDRESS) --v=1 --timeout=60s --leader-election=true \
            --retry-interval-start=500ms --extra-create-metadata=true \
            --feature-gates=HonorPVReclaimPolicy=true --prevent-volume-mode-conversion=true",
        retired: RECLAIM_POLICY,
    },
    Manifest {
        of: "Rook 1.2, both drivers",
        arguments: "--csi-address=$(ADDRESS) --v=5 --timeout=150s --retry-interval-start=500ms \
            --enable-leader-election=true --leader-election-type=leases \
            --leader-election-namespace=rook-ceph",
        retired: OLD_ELECTION,
    },
    Manifest {
        of: "Rook 1.6, rbd",
        arguments: "--csi-address=$(ADDRESS) --v=0 --timeout=150s --retry-interval-start=500ms \
            --leader-election=true --leader-election-namespace=rook-ceph --default-fstype=ext4 \
            --extra-create-metadata=true",
        retired: &[],
    },
    Manifest {
        of: "Rook 1.11, cephfs",
        arguments: "--csi-address=$(ADDRESS) --v=0 --timeout=150s --retry-interval-start=500ms \
            --leader-election=true --leader-election-namespace=rook-ceph \
            --leader-election-lease-duration=137s --leader-election-renew-deadline=107s \
            --leader-election-retry-period=26s --extra-create-metadata=true",
        retired: &[],
    },
    Manifest {
        of: "Rook 1.17, rbd, with limits on requests",
        arguments: "--csi-address=$(ADDRESS) --v=0 --timeout=150s --retry-interval-start=500ms \
            --leader-election=true --leader-election-namespace=rook-ceph \
            --leader-election-lease-duration=137s --leader-election-renew-deadline=107s \
            --leader-election-retry-period=26s --default-fstype=ext4 --extra-create-metadata=true \
            --prevent-volume-mode-conversion=true --feature-gates=HonorPVReclaimPolicy=true \
            --feature-gates=Topology=false --kube-api-burst=10 --kube-api-qps=5",
        retired: RECLAIM_POLICY,
    },
    Manifest {
        of: "Alibaba Cloud's disk plugin, of the time of v1.6.0",
        arguments: "--provisioner=diskplugin.csi.alibabacloud.com --csi-address=$(ADDRESS) \
            --feature-gates=Topology=True --volume-name-prefix=disk --strict-topology=true \
            --timeout=150s --enable-leader-election=true --leader-election-type=leases \
            --retry-interval-start=500ms --v=5",
        retired: &["--provisioner", "--enable-leader-election", "--leader-election-type"],
    },
];

/// A cluster and a driver without topology.
struct Setup {
    around: Surroundings,
    client: Client,
}

impl Setup {
    async fn new() -> Self {
        let around = Surroundings::start(json!({"name": DRIVER})).await;
        around.served.api().namespace("rook-ceph");
        let client = client_of(&around.served.layout().kubeconfig("admin")).await.unwrap();
        Self { around, client }
    }

    /// What a kubelet makes of a manifest's arguments, and where the API server is.
    fn arguments(&self, manifest: &Manifest) -> Vec<String> {
        let address = format!("unix://{}", self.around.file("csi.sock").display());
        let endpoint = format!("127.0.0.1:{}", free_port().unwrap());
        let filled =
            |word: &str| word.replace("$(ADDRESS)", &address).replace("$(POD_IP):8090", &endpoint);
        let kubeconfig = self.around.served.layout().kubeconfig("admin");
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        manifest.arguments.split_whitespace().map(filled).chain([kubeconfig]).collect()
    }

    /// Who holds the Lease.
    async fn leader(&self, namespace: &str) -> Option<String> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        let holder = leases.get_opt(LEASE).await.unwrap()?.spec?.holder_identity?;
        (!holder.is_empty()).then_some(holder)
    }

    /// Starts the program by a manifest, lets it lead, and ends it; returns its log.
    async fn live(&self, manifest: &Manifest, log: &Path) -> String {
        let rooks = manifest.arguments.contains("=rook-ceph");
        let namespace = if rooks { "rook-ceph" } else { "default" };
        let mut provisioner = Provisioner::start(
            env!("CARGO_BIN_EXE_csi-provisioner"),
            &self.arguments(manifest),
            log.to_owned(),
        );
        let leads = format!("it leads with the arguments of {}", manifest.of);
        provisioner.until(&leads, async |_| self.leader(namespace).await.is_some()).await;
        assert!(provisioner.stop().await.success(), "{}", manifest.of);
        assert_eq!(self.leader(namespace).await, None, "{}", manifest.of);
        provisioner.log()
    }
}

#[tokio::test]
async fn manifests_in_the_field_start_it_and_hear_of_what_is_retired() {
    let setup = Setup::new().await;
    for manifest in &FIELD {
        let log = setup.live(manifest, &setup.around.file("provisioner.log")).await;
        let warnings: Vec<_> = log.lines().filter(|line| line.contains(" is retired")).collect();
        assert_eq!(warnings.len(), manifest.retired.len(), "{}: {warnings:#?}", manifest.of);
        for retired in manifest.retired {
            let warned = warnings.iter().any(|line| names(line, retired));
            assert!(warned, "{}: nothing about {retired} in {warnings:#?}", manifest.of);
        }
    }
    setup.around.stop().await;
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
        let words = ["csi-provisioner", argument].into_iter().map(Into::into);
        let parsed = Flags::parse(words, |_| None).unwrap_or_else(|refusal| panic!("{refusal:?}"));
        let flag = argument.split('=').next().unwrap();
        let retired = format!("flag {flag} is retired");
        if parsed.warnings.iter().any(|warning| warning.contains(&retired)) {
            assert!(page.contains(&format!("`{flag}`")), "docs/flags.md does not name {flag}");
        }
    }
}
