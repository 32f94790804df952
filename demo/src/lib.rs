//! A claim gets a volume and both are deleted again, shown as a timeline: `cargo run -p demo`. With `--scenario NAME`,
//! something goes wrong meanwhile, and nothing is lost.
//!
//! Everything but the provisioner runs in this process: testkit's API server over HTTPS, a CSI driver that keeps its
//! volumes as directories, and the binder that does kube-controller-manager's part. The provisioner is the real
//! program, a process of its own. Each line comes from a watch, from the driver's log or from the disk, and a line that
//! does not come makes the demo fail.

pub mod cluster;
mod driver;
pub mod observations;
pub mod play;
pub mod program;
pub mod scenarios;
pub mod timeline;

/// Why the demo failed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
