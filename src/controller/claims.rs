//! Claims: from the first event of a claim to its PersistentVolume.
//!
//! | module | content |
//! |---|---|
//! | [`index`] | what is known of each claim, from events and from calls |
//! | [`state`] | the state of a claim's volume and its transitions |
//! | [`worker`] | the parts of the worker |
//! | [`sync`] | the worker takes a claim from the queue and does what the plan says |
//! | `plan` | decides what to do with a claim now: a pure function of what is known |
//! | `verification` | live reads before the first call for a claim |
//! | [`call_record`] | writes and removes the record of an open call, on the claim |
//! | [`record_status`] | what the record on a claim means, and the edits of it |
//! | [`save`] | saves PersistentVolumes |
//! | `discard` | removes unusable volumes |
//! | `reporting` | events, log lines and metrics of a claim |
//! | `others_records` | claims with the record of another node's or another driver's call |
//! | `node` | removes the selected node from a claim, so that the scheduler chooses again |

pub mod call_record;
pub(crate) mod discard;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../fuzz/bodies/record.rs"]
pub mod fuzz;
pub mod index;
mod node;
mod others_records;
pub mod plan;
pub mod record_status;
mod reporting;
pub mod save;
pub mod state;
pub mod sync;
pub mod verification;
pub mod worker;
