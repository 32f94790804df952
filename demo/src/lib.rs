//! A claim gets a volume and both are deleted again, shown as a timeline: `cargo run -p demo`. With
//! `--scenario NAME`, something goes wrong meanwhile, and nothing is lost.
//!
//! Everything but the provisioner runs in this process: an API server in memory (over HTTPS), a
//! CSI driver that keeps its volumes as directories, and the binder that does
//! kube-controller-manager's part. The provisioner is the real program, a process of its own.
//!
//! Each line comes from a watch, from the driver's log or from the disk, and a line that does not come
//! makes the demo fail.
//!
//! | module | content |
//! |---|---|
//! | `main.rs` | the command line, Ctrl-C, the exit code |
//! | [`play`] | plays a scenario: acts, and waits for its signs |
//! | [`scenarios`] | the scenarios: a table |
//! | [`balance`] | the driver's volumes beside the PersistentVolumes at the end |
//! | [`observer`] | watches API server, driver and disk |
//! | [`observations`] | the text of each observation: pure |
//! | [`timeline`] | how a line looks |
//! | [`driver`] | the driver: zones, snapshots, answers that are held back |
//! | [`cluster`] | API server, driver and binder, in a directory that goes with them |
//! | [`program`] | the provisioner's program: found or built, started, ended, quoted |

pub mod balance;
pub mod cluster;
pub mod driver;
pub mod observations;
pub mod observer;
pub mod play;
pub mod program;
pub mod scenarios;
pub mod timeline;
