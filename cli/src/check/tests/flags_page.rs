//! `docs/flags.md`, written from the flags' descriptions, so that it cannot differ from them.

use std::fmt::Write as _;

use clap::Arg;

use crate::check::releases::{SINCE, since};
use csi_provisioner::flags::{
    command::command,
    gates,
    retired::{self, RETIRED},
};

const INTRODUCTION: &str = "\
# Command line

A test writes this page from the flags in `src/flags`: `UPDATE_DOCS=1 cargo test -p cli docs_flags`.

Names, types and defaults are those of external-provisioner v6.3.0. `--name=value` and `--name value` both
work; a bool without a value is true, and another value needs the `=`. The only short flag is `-v`.
Durations need a unit (`1m30s`). Of a flag that is repeated the last one counts; `--feature-gates`,
`--leader-election-labels` and `--vmodule` add up (of patterns that fit a file the first one counts).
A word that is no flag is ignored. As the first argument, a command of `kubectl-csi_provisioner` is refused.
";

const CLASS_PARAMETERS: &str = "\
## Class parameters

The driver gets all parameters of a StorageClass but those that begin with `csi.storage.k8s.io/`; one of these that is
not listed here is refused.

| parameter | meaning |
|---|---|
| `csi.storage.k8s.io/fstype` | file system; without it `--default-fstype`. Older: `fstype`, which the driver gets too |
| `csi.storage.k8s.io/secret-name`, `-namespace` | the secret for every use that has none of its own |
| `csi.storage.k8s.io/provisioner-secret-name`, `-namespace` | for CreateVolume and DeleteVolume. Older: `csiProvisionerSecretName`, `csiProvisionerSecretNamespace` |
| `csi.storage.k8s.io/controller-publish-secret-name`, `-namespace` | for ControllerPublishVolume. Older: `csiControllerPublishSecretName`, `…Namespace` |
| `csi.storage.k8s.io/node-stage-secret-name`, `-namespace` | for NodeStageVolume. Older: `csiNodeStageSecretName`, `…Namespace` |
| `csi.storage.k8s.io/node-publish-secret-name`, `-namespace` | for NodePublishVolume. Older: `csiNodePublishSecretName`, `…Namespace` |
| `csi.storage.k8s.io/controller-expand-secret-name`, `-namespace` | for ControllerExpandVolume |
| `csi.storage.k8s.io/node-expand-secret-name`, `-namespace` | for NodeExpandVolume |
| `csi.storage.k8s.io/controller-modify-secret-name`, `-namespace` | for ControllerModifyVolume |
| `csi.storage.k8s.io/delete-secret-name`, `-namespace` | for DeleteVolume, with the gate `CephRBDExtensions` |

In a secret's name `${pv.name}`, `${pvc.namespace}`, `${pvc.name}` and `${pvc.annotations['KEY']}` are replaced, in its
namespace the first two.

";

const EXIT_CODES: &str = "\
## Exit codes

They are external-provisioner's, but for what [differences.md](differences.md#start-stop-the-driver-and-the-lease) lists: SIGTERM and SIGINT end with 0, and `--enable-capacity` without rights ends nothing. The last error also stands in `/dev/termination-log`, if that file exists.

| code | when |
|---|---|
| 0 | `--help`, `--version`; SIGTERM or SIGINT, once the work in hand has ended |
| 1 | logging flags that make no sense; `--metrics-address` together with `--http-endpoint`; `--csi-address` is invalid; no socket for 30 s at the start; with leader election no driver for 30 s; `Probe` fails for good; the driver came back as another; the Lease is lost, or names another holder; a second signal |
| 2 | an unknown flag, or a value that it does not take (the usage is printed, the error last); values that could only crash later: times of leader election that do not fit, `--volume-name-uuid-length` beyond 32, no workers, a `--metrics-path` that is not a path |
| 255 | an unknown or locked feature gate; `--node-deployment` without `NODE_NAME`; `--enable-capacity` without `NAMESPACE`, or without `POD_NAME` unless `--capacity-ownerref-level` is negative, or without the owner that it looks for; a rate of requests with a burst of 0; no API server to be found, or credentials that cannot be read; the driver's name or capabilities cannot be read; `--http-endpoint` or `--status-endpoint` cannot be listened on |

## Environment

| variable | meaning |
|---|---|
| `KUBECONFIG` | overrides `--kubeconfig`; several paths with `:` between them are merged as by kubectl |
| `NODE_NAME` | the node's name, with `--node-deployment` |
| `NAMESPACE` | namespace of CSIStorageCapacity objects and of this pod, with `--enable-capacity` |
| `POD_NAME` | this pod's name, with `--enable-capacity` unless `--capacity-ownerref-level` is negative |
| `POD_NAMESPACE` | namespace of the Lease, where `--leader-election-namespace` is not given |
| `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` | the proxy on the way to the API server and who is exempt from it, by curl's rules; lower case works too. `proxy-url` in the kubeconfig comes first |
";

/// The page.
fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    // Writing to a text cannot fail.
    let mut group = String::new();
    for flag in command().get_arguments().filter(|flag| !flag.is_hide_set()) {
        let heading = flag.get_help_heading().unwrap();
        if heading != group {
            group = heading.to_owned();
            let head = "| flag | takes | default | meaning | since |\n|---|---|---|---|---|";
            let _ = writeln!(page, "\n## {group}\n\n{head}");
        }
        let _ = writeln!(page, "{}", row(flag));
    }
    page.push_str(&gates());
    page.push_str(&retired());
    let _ = write!(page, "\n{CLASS_PARAMETERS}{EXIT_CODES}");
    page
}

/// The line of a flag.
fn row(flag: &Arg) -> String {
    let name = flag.get_long().unwrap();
    let spelled = if name == "v" { "`-v`, `--v`".into() } else { code(name, "--") };
    let kind = &flag.get_value_names().unwrap()[0];
    let default = flag.get_default_values().first().filter(|default| !default.is_empty());
    let default = default.map(|text| code(text.to_str().unwrap(), "")).unwrap_or_default();
    let help = flag.get_help().unwrap().to_string().replace('|', "\\|");
    // The gates have a section of their own.
    let help = help.lines().next().unwrap().trim_end_matches(':');
    let since = since(name).unwrap_or("here only");
    format!("| {spelled} | {kind} | {default} | {help} | {since} |")
}

fn gates() -> String {
    let mut text = "\n## Feature gates\n\n| gate | stage | default |\n|---|---|---|\n".to_owned();
    for (name, stage, default) in gates::own() {
        let _ = writeln!(text, "| `{name}` | {stage} | {default} |");
    }
    text.push_str(
        "\n`CephRBDExtensions` is not in external-provisioner ([what it does](../deploy/README.md#cephrbdextensions)). \
         `VolumeAttributesClass` is switched off where the API server does not have the kind, unless it is set. \
         `CSIMigrationRBD` lets ceph's driver serve classes and volumes of the in-tree plugin `kubernetes.io/rbd`, \
         as Kubernetes 1.23 to 1.30 had it do. \
         `AllAlpha` and `AllBeta` set what is not set by name. Gates of Kubernetes 1.36's server library are \
         accepted and mean nothing here. Retired ones are accepted with a warning, \
         whatever their value:\n\n| gate | releases | what became of it |\n|---|---|---|\n",
    );
    for gates::RetiredGate { name, releases, fate } in &gates::RETIRED {
        let _ = writeln!(text, "| `{name}` | {releases} | {fate} |");
    }
    text
}

fn retired() -> String {
    let mut text = "\n## Flags of earlier releases\n\nAccepted with one warning each; external-provisioner ends \
                    with \"unknown flag\" and code 2.\n\n| flag | releases | what to do |\n|---|---|---|\n"
        .to_owned();
    for flag in &RETIRED {
        let _ =
            writeln!(text, "| {} | {} | {} |", code(flag.name, "--"), flag.releases, flag.advice);
    }
    let _ = writeln!(
        text,
        "\nComing from v1 with `--enable-leader-election` and no `--leader-election-type=leases`: {}.",
        retired::ENDPOINTS
    );
    text
}

fn code(text: &str, prefix: &str) -> String {
    format!("`{prefix}{text}`")
}

#[test]
fn every_flag_of_external_provisioner_is_one_here() {
    let known: Vec<&str> = SINCE.iter().flat_map(|(_, flags)| *flags).copied().collect();
    let command = command();
    let flags: Vec<_> = command.get_arguments().filter_map(Arg::get_long).collect();
    assert_eq!(known.len(), 51, "as v6.3.0 has");
    for known in known {
        assert!(flags.contains(&known), "{known}");
    }
}

#[test]
fn docs_flags_md_says_what_the_tables_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/flags.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == page(), "docs/flags.md is not what the tables say: UPDATE_DOCS=1 writes it");
}
