//! A claim gets a volume and both are deleted again, shown as a timeline: `cargo run -p demo`. With
//! `--scenario NAME`, something goes wrong meanwhile, and nothing is lost.
//!
//! Everything but the provisioner runs in this process: an API server in memory (over HTTPS), a
//! CSI driver that keeps its volumes as directories, and the binder that does
//! kube-controller-manager's part. The provisioner is the real program, a process of its own.
//!
//! Each line comes from a watch, from the driver's log or from the disk, and a step that is not
//! observed makes the demo fail with the step's name.
//!
//! | module | content |
//! |---|---|
//! | `main.rs` | the command line, Ctrl-C, the exit code |
//! | [`play`] | the demo itself: starts, creates, deletes, and waits until each step is observed |
//! | [`steps`] | the steps that must be observed, what causes what, and the verdict: pure |
//! | [`scenarios`] | the scenarios of `--scenario`: a table, and what plays it |
//! | [`screen`] | prints what is observed |
//! | [`observer`] | watches API server, driver and disk |
//! | [`observations`] | the text of each observation, and which steps it shows: pure |
//! | [`leftovers`] | what is left at the end, and the closing sentence |
//! | [`timeline`] | how a line looks |
//! | [`driver`] | the driver: zones, snapshots, answers that are held back |
//! | [`cluster`] | API server, driver and binder, in a directory that goes with them |
//! | [`program`] | the provisioner's program: found or built, started, ended, quoted |

pub mod cluster;
pub mod driver;
pub mod leftovers;
pub mod observations;
pub mod observer;
pub mod play;
pub mod program;
pub mod scenarios;
pub mod screen;
pub mod steps;
pub mod timeline;
