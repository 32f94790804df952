//! The scenario player: replays recorded scenarios on a provisioner and judges what comes of it, as the reference
//! player (`tests/conformance/play.py`) does. `run` carries out the steps of a `scenario`, `outcome` puts together what
//! is left, `verdict` compares it with what was recorded or with what `rulings` ask instead, `runner` plays several.

mod api;
pub mod cli;
mod leak;
mod names;
mod outcome;
mod process;
mod rights;
mod rulings;
mod run;
mod runner;
mod scenario;
mod shadowed;
mod verdict;
mod yaml;

pub use outcome::Outcome;
pub use rulings::{Ruled, Rulings};
pub use run::Explained;
pub use runner::{Options, Played, Summary, Verdict, play_all, scenario_files};

/// Why a scenario was not played to its end.
pub type PlayError = crate::Error;
