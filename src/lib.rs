//! Kubernetes' CSI provisioner: turns PersistentVolumeClaims into volumes of a CSI driver, and
//! deletes the volumes again. A drop-in for the Go original (external-provisioner v6.3.0).
//!
//! # Where everything lives
//!
//! Arrows point down only: a room uses those below it, never those above.
//!
//! | room | what lives there |
//! |---|---|
//! | `main.rs` | parse, build the runtime, run, exit code |
//! | [`app`] | the order of start and end, who is wired to whom; takes the outside world as a value |
//! | [`flags`] | every flag, its default, its check, in the original's spelling |
//! | [`csi_provisioner`] | provisioning for CSI: claim and class → `CreateVolumeRequest` → PersistentVolume; deletion |
//! | [`controller`] | the driver-agnostic controller: which claim, which volume, when; claim states, saving, finalizers; the `Provisioner` trait |
//! | [`source_protection`] | finalizers on what volumes are made from: who needs which snapshot or claim, and the sweep |
//! | [`capacity`] | CSIStorageCapacity objects: how much room there is for each class in each segment of the cluster |
//! | [`migration`] | in-tree plugins' classes and volumes, and what they are to the CSI drivers that took over |
//! | [`nodes`] | where nodes are and whether the driver is on them: CSINodes and Nodes, as far as topology keys name them |
//! | [`preflight`] | which rights are needed, and which are missing |
//! | [`release_claims`] | the subcommand that lists and releases claims with open calls |
//! | [`leader`] | leader election by a Lease |
//! | [`csi`] | the driver's client: connection, identity, calls with deadlines, whose word an error is |
//! | [`kube`] | the API server's client: lanes and limits, slim views, watches, caches, edits, events, quantities |
//! | [`workqueue`] | client-go's rate-limited work queue |
//! | [`http`], [`logging`] | metrics, health checks and profiles; klog-shaped logs |
//! | `go_fmt`, [`plain_text`] | quoting as users know it from Go; others' texts, cut and escaped |
//! | `table` | a map for what comes in bursts |
//! | [`metrics`] | every metric's name, labels and buckets |
//! | [`mutations`] | defects on purpose, which the simulation must find; none in a shipped build |
//! | `fuzzing` | what the bodies of the fuzz targets share; each stands beside what it checks, in a file `fuzz.rs`; none in a shipped build |
//! | [`runtime`] | time, chance, tasks, and the gate that says whether work may start: what a simulation replaces |
//!
//! Beside the crate: `proto/csi.proto` is the wire contract with the driver; `testkit/` (never
//! shipped) holds the in-memory API server, the test drivers and the scenario player; `tests/`
//! holds what is tested from outside, `docs/` what is decided and why.
//!
//! # The way of a claim
//!
//! A watch shows it → [`controller::claims::index`] keeps it if it is ours → the queue `claims` →
//! [`controller::claims`] decides what to do now → [`csi_provisioner`] asks the driver → its
//! [`Outcome`](controller::provisioner::Outcome) moves the claim's
//! [`ClaimState`](controller::claims::state::ClaimState) → [`controller::claims::save`] saves the
//! PersistentVolume. A volume's way is the mirror of it, through [`controller::volumes::index`] and
//! [`controller::volumes`].

pub mod app;
pub mod capacity;
pub mod controller;
pub mod csi;
pub mod csi_provisioner;
pub mod flags;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod go_fmt;
pub mod http;
pub mod kube;
pub mod leader;
pub mod logging;
pub mod metrics;
pub mod migration;
pub mod mutations;
pub mod nodes;
pub mod plain_text;
pub mod preflight;
pub mod release_claims;
pub mod runtime;
pub mod source_protection;
mod table;
pub mod workqueue;
