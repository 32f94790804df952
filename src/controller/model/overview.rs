//! What the controller works on now: claims and volumes, as data for the status.
//!
//! The data can be serialized and has a bounded size: of each kind only so many items are listed, and the
//! others are counted. It has nothing that the events of a claim or the metrics do not show.
//! [`overview`](crate::controller::overview) fills it in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::workqueue::Place;

/// What to list of claims and volumes. By default all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Only the claim of this `namespace/name`.
    pub claim: Option<String>,
    /// Only the volume of this name.
    pub volume: Option<String>,
}

/// What the controller works on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Overview {
    /// The claims in work.
    pub claims: Claims,
    /// The volumes to delete.
    pub volumes: Volumes,
}

/// The claims in work.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Claims {
    /// Their number by stage.
    pub by_stage: BTreeMap<Stage, usize>,
    /// First those that fail or are blocked, then the others, the oldest first.
    pub listed: Vec<ListedClaim>,
    /// The number of claims that are not listed.
    pub more: usize,
}

/// One claim in work.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListedClaim {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
    /// The storage class.
    pub class: String,
    /// The stage of its volume.
    pub stage: Stage,
    /// Whether the claim is being deleted.
    pub is_deleted: bool,
    /// For how many seconds this process has known the claim.
    pub age_seconds: u64,
    /// How many attempts of this process have ended.
    pub attempts: u32,
    /// How the last attempt failed, if it did.
    pub last_failure: Option<LastFailure>,
    /// What the claim waits for, apart from the driver.
    pub blocked: Option<Blocked>,
    /// Its place in the queue: when it is worked on next.
    pub next: Place,
}

/// The kind of a claim's state, as the status names it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// No call is open.
    #[default]
    Waiting,
    /// An earlier process has left a call open, which this process has not repeated yet.
    Recorded,
    /// A call is running.
    InFlight,
    /// The outcome of a call is unknown.
    Background,
    /// The volume exists, and its PersistentVolume is being saved.
    Saving,
    /// A PersistentVolume is gone, and perhaps the volume with it.
    PvGone,
    /// The volume cannot be used and is being removed.
    Unusable,
    /// A volume may be left at the driver.
    SuspectedLeak,
    /// The claim has or had its PersistentVolume.
    Done,
}

/// How the last attempt for a claim failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastFailure {
    /// The name of the gRPC code; empty if the driver was not called.
    pub code: String,
    /// The text of the event.
    pub message: String,
    /// How many seconds ago the attempt ended.
    pub seconds_ago: u64,
}

/// What a claim waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Blocked {
    /// The reason.
    pub reason: String,
    /// For how many seconds.
    pub seconds: u64,
}

/// The volumes to delete.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volumes {
    /// First those that fail, then the others, by name.
    pub listed: Vec<ListedVolume>,
    /// The number of volumes that are not listed.
    pub more: usize,
}

/// One volume to delete.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListedVolume {
    /// The name of the PersistentVolume.
    pub name: String,
    /// Whether the driver has deleted it, and only the PersistentVolume is left.
    pub is_deleted_at_driver: bool,
    /// The number of the next attempt since the last success.
    pub attempt: u32,
    /// How the last attempt failed, if it did and is among those that are kept.
    pub last_failure: Option<LastFailure>,
    /// Its place in the queue: when it is worked on next.
    pub next: Place,
}
