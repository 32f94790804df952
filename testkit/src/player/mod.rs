//! The scenario player: replays recorded scenarios on a provisioner and judges what comes of it.
//!
//! Owns the scenario files' meaning, which is that of the reference player
//! (`tests/conformance/play.py`): steps, waits, notes, the normalised outcome and its comparison
//! with the recorded one, the differences that a ruling allows, and playing several at once.
//! Promises the reference player's verdicts, held by answers of its own functions (`goldens`).
//! Leaves the API server to `apiserver` and the CSI driver to `driver`.

mod api;
pub mod cli;
mod cluster;
mod expand;
mod explained;
mod files;
mod invocation;
mod leak;
mod names;
mod note;
mod outcome;
mod process;
mod python;
mod rights;
mod rulings;
mod run;
mod runner;
mod scenario;
mod shadowed;
mod verdict;
mod wait;
pub(crate) mod web;
mod yaml;

pub use api::ApiError;
pub use cluster::{Cluster, ClusterError};
pub use explained::{Explained, play_and_explain};
pub use files::scenario_files;
pub use outcome::Outcome;
pub use process::ProcessError;
pub(crate) use process::last_lines;
pub use rights::RightsError;
pub use rulings::{Ruled, RulingError, Rulings};
pub use run::RunError;
pub use runner::{Judged, Options, PlayError, Played, Summary, Verdict, play, play_all};
pub use scenario::{Scenario, ScenarioError};
pub use verdict::{Detail, Difference};
pub use yaml::YamlError;
