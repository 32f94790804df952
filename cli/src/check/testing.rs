//! Workloads and flags for tests.

use serde_json::json;

use super::manifest::{Manifest, Workload};
use csi_provisioner::flags::Flags;

/// The flags of a command line.
pub(super) fn flags(args: &[&str]) -> Flags {
    let args = ["csi-provisioner"].iter().chain(args).map(Into::into);
    Flags::parse(args, |_| Some("x".into())).unwrap().flags
}

/// A workload `ns/w` of the ServiceAccount `p` that runs the provisioner with these arguments.
pub(super) fn workload(kind: &str, args: &[&str]) -> Workload {
    let container = json!({"name": "csi-provisioner", "args": args});
    let spec = json!({"serviceAccountName": "p", "containers": [container]});
    let object = json!({
        "kind": kind,
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"template": {"spec": spec}},
    });
    let manifest = Manifest::parse(&[object.to_string()], "default");
    manifest.workloads().unwrap().remove(0)
}
