//! What an admin of csi-provisioner runs by hand: `kubectl csi-provisioner COMMAND`.
//!
//! | module | content |
//! |---|---|
//! | `main.rs` | runs the command that the first argument names, prints its output, sets the exit code |
//! | [`check`] | says before the switch what becomes of a manifest that runs external-provisioner |
//! | [`explain`] | says why a claim has no volume, or why a volume is not deleted |
//! | [`status`] | shows what the leader works on |
//! | [`release_claims`] | lists the claims with an open CreateVolume, and releases them |
//! | [`shadow`] | shadow mode: compares what external-provisioner does with what the sidecar would do |
//! | [`shadow_report`] | prints what a process in shadow mode has found |
//! | [`subcommand`] | the command line, and what commands print |
//! | [`connection`] | the API server, as kubectl finds it, and the namespace of the Leases |
//! | `preview` | what a new leader would do with one claim |
//! | `objects` | events, pods and Leases, as the commands read them |
//! | [`fetch`] | reads the status of a running process |
//! | [`duration`](mod@duration) | durations as they are printed |
//!
//! The rules are the sidecar's own: its plan of claims, its checks before a call, its table of rights. The
//! sidecar's library knows nothing of this crate. Untrusted text is escaped before it is printed.

pub mod check;
pub mod connection;
pub mod duration;
pub mod explain;
pub mod fetch;
mod objects;
mod preview;
pub mod release_claims;
pub mod shadow;
pub mod shadow_report;
pub mod status;
pub mod subcommand;
#[cfg(test)]
mod testing;
