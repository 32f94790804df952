//! Claims: from the first event of a claim to its PersistentVolume.
//!
//! | module | what it owns |
//! |---|---|
//! | [`index`] | what is known of each claim, from its watch and from its calls |
//! | [`state`] | the states of a claim's volume, and what moves a claim from one to the next |
//! | [`sync`] | the worker: takes a claim, reads the plan, does what it says |
//! | `plan` | what is to be done with a claim now: a pure function of what is known |
//! | `verification` | what must be read live before a claim's first call |
//! | [`call_record`] | the record of an open call, on the claim |
//! | [`save`] | saving the PersistentVolume |
//! | `discard` | removing a volume that cannot be used |
//! | `reporting` | events, log lines and metrics of a claim |
//! | `elsewhere`, `node` | claims of other nodes, and nodes that are given back |

pub mod call_record;
pub(crate) mod discard;
mod elsewhere;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod index;
mod node;
mod plan;
mod reporting;
pub mod save;
pub mod state;
pub mod sync;
pub(crate) mod verification;
