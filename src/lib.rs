//! The CSI provisioner of Kubernetes: creates volumes of a CSI driver for PersistentVolumeClaims, and
//! deletes them again. A drop-in replacement for the Go sidecar external-provisioner v6.3.0.
//!
//! # Modules
//!
//! Listed from top to bottom: a module uses modules further down, not further up.
//!
//! | module | content |
//! |---|---|
//! | `main.rs` | parses the flags and runs the program |
//! | [`app`] | wires everything; order of start and shutdown; the process: runtime, signals, exit code |
//! | [`flags`] | all flags, their defaults and checks, spelled as in external-provisioner |
//! | [`status`] | what this process does now, as JSON |
//! | [`csi_provisioner`] | CSI: from claim and class to `CreateVolumeRequest` and PersistentVolume; deletion |
//! | [`controller`] | without CSI: queues, workers, states, saving, finalizers; traits `Provisioner`, `Deleter` |
//! | [`source_protection`] | finalizers on the snapshots and claims from which volumes are created |
//! | [`capacity`] | publishes CSIStorageCapacity objects per class and topology segment |
//! | [`nodes`] | caches topology keys and labels from CSINodes and Nodes |
//! | [`preflight`] | checks which RBAC permissions are missing |
//! | [`leader`] | leader election with a Lease |
//! | [`csi`] | the CSI client: connection, driver identity, calls with timeouts, meaning of status codes |
//! | [`kube`] | the API server's client: lanes, informers, shared reads, edits, events |
//! | [`workqueue`] | client-go's rate-limiting work queue, and the mutex per key |
//! | [`http`], [`logging`] | metrics, health checks and the CPU profile over HTTP; logs in klog's format |
//! | [`plain_text`] | untrusted texts, truncated and escaped |
//! | [`metrics`] | all metrics: names, labels, buckets |
//! | `fuzzing` | helpers of the fuzz targets, with their bodies in `fuzz/bodies/`; compiled out of shipped builds |
//! | [`runtime`] | clock, random numbers, tasks, back-off, the gate that is open while this process leads |
//!
//! Outside this crate: `crates/csi-translation` translates classes and volumes of in-tree plugins, and
//! `crates/go-fmt` reads and writes texts as Go does, quantities too; neither knows of this one.
//! `proto/csi.proto` is the CSI specification. `cli/` has the commands that an admin runs by hand (`kubectl
//! csi-provisioner`), and shadow mode. `testkit/` (never shipped) contains an in-memory API server, test
//! drivers and the scenario player. `tests/` contains integration tests and simulations; what they share is
//! in `tests/support/`. `docs/` describes behaviour and decisions, above all `docs/safety.md`.
//!
//! # How a claim is provisioned
//!
//! 1. The informer of claims, started in `controller::watches`, passes each event to
//!    [`controller::claims::index`], which keeps the claims of this provisioner that need work and says
//!    which ones to queue.
//! 2. The claim's UID enters the queue `claims` (`controller::queues`), a [`workqueue`] that is fair among
//!    classes and namespaces, and one of its workers calls [`controller::claims::sync`].
//! 3. `controller::claims::plan`, a pure function, decides what to do. What must be read live before the
//!    first call is in `controller::claims::verification`.
//! 4. [`csi_provisioner`], through the trait [`Provisioner`](controller::provisioner::Provisioner), checks
//!    the request and reads what it needs.
//! 5. [`controller::claims::call_record`] records the call, where the flags ask for it, and it is sent.
//! 6. The [`Outcome`](controller::model::outcome::Outcome) moves the claim's
//!    [`ClaimState`](controller::claims::state::ClaimState) (`claims::index::work`), which also says what is
//!    next: to save, to repeat the call, to try again. What failed for want of an object is
//!    registered in [`controller::dependencies`], which queues the claim when that object changes, or
//!    lets its own retries look for it.
//! 7. [`controller::claims::save`] creates the PersistentVolume; its retries use the queue `unsavedpvs`. A
//!    volume that cannot be used is deleted by `controller::claims::discard`.
//! 8. `controller::claims::reporting` emits events and counts.
//!
//! # How a volume is deleted
//!
//! The informer of PersistentVolumes feeds [`controller::volumes::index`]. The queue `volumes` leads to
//! [`controller::volumes::sync`], which asks [`controller::model::finalizer`] what is due, reads the
//! PersistentVolume live, calls the driver and then deletes the PersistentVolume.

pub mod app;
pub mod capacity;
pub mod controller;
pub mod csi;
pub mod csi_provisioner;
pub mod flags;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "../fuzz/bodies/fuzzing.rs"]
mod fuzzing;
pub mod http;
pub mod kube;
pub mod leader;
pub mod logging;
pub mod metrics;
pub mod nodes;
pub mod plain_text;
pub mod preflight;
pub mod runtime;
pub mod source_protection;
pub mod status;
pub mod workqueue;
