//! Test doubles for csi-provisioner: a cluster's control plane and CSI drivers, small enough to run in
//! a test, and the player of recorded scenarios. Never shipped.
//!
//! # Modules
//!
//! Listed from top to bottom: a module uses modules further down, not further up.
//!
//! | module | content |
//! |---|---|
//! | `main.rs` | the program `testkit`: `serve`, `play`, `driver`, `binder` |
//! | [`load`] | the load bench, whose program is `bin/load.rs` |
//! | [`player`] | replays `tests/conformance/*.yaml` on a provisioner's binary and judges what comes of it |
//! | [`control_plane`] | a real or in-memory API server, whichever the environment offers, laid out in a directory |
//! | [`binder`] | binds claims to volumes, as kube-controller-manager does: an ordinary client |
//! | [`apiserver`] | the in-memory Kubernetes API server, and its parts below |
//! | [`driver`] | CSI drivers: one answers by rules, one keeps volumes on disk |
//! | [`kubectl`] | which kubectl binaries tests are played with |
//! | [`ports`] | ports for programs that are yet to be started |
//!
//! Within [`apiserver`], from the network to the store:
//!
//! | module | content |
//! |---|---|
//! | [`serve`](apiserver::serve) | HTTPS, certificates, the audit file, kubectl's protobuf |
//! | [`access`](apiserver::access), `documents` | identities and roles; what is discovered: all behind [`hooks`](apiserver::hooks) |
//! | `service` | from a request to its answer: who may, which fault strikes, which verb |
//! | [`faults`](apiserver::faults), [`audit`](apiserver::audit) | what goes wrong on purpose; what was asked |
//! | `verbs`, [`watch`](apiserver::watch) | what each verb does; changes as a stream |
//! | `patch`, `validation`, `defaults`, `strategy` | what becomes of an object on its way in |
//! | [`resources`](apiserver::resources) | the kinds, and what each release from 1.20 on serves |
//! | `store` | the objects and their history |
//!
//! The product takes this crate for its tests and this crate does not depend on the product: the two
//! meet only at the Kubernetes API, at `proto/csi.proto` and at the program's command line.

pub mod apiserver;
pub mod binder;
pub mod control_plane;
pub mod driver;
pub mod kubectl;
pub mod load;
pub mod player;
pub mod ports;
