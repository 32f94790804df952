//! The status: what this process does now, for the CLI, which shows it.
//!
//! [`Status`] is plain data of bounded size, without secrets. It shows names and texts that the events of
//! claims show as well. `app` reads it from the parts of the program for each request, and serves it as JSON
//! on an address of its own (`--status-endpoint`).

use serde::{Deserialize, Serialize};

use crate::csi::{Capabilities, Driver, FailedCall};
pub use crate::{
    controller::model::overview::{
        Blocked, Claims, LastFailure, ListedClaim, ListedVolume, Overview, Query, Volumes,
    },
    workqueue::Place,
};

/// The path of the JSON.
pub const JSON_PATH: &str = "/status.json";

/// What this process does now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// When this was read.
    pub time: String,
    /// The driver.
    pub driver: DriverStatus,
    /// The leader election.
    pub leader: LeaderStatus,
    /// What is not listed yet, as `/readyz` says.
    pub not_ready: Option<String>,
    /// The permissions that are missing, with the rules to add.
    #[serde(rename = "missingRights")]
    pub missing_permissions: Vec<String>,
    /// What is in work.
    #[serde(flatten)]
    pub work: Overview,
}

/// The driver.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DriverStatus {
    /// Its name.
    pub name: String,
    /// Whether it is connected.
    pub is_connected: bool,
    /// The capabilities of the plug-in.
    pub plugin_capabilities: Vec<String>,
    /// The capabilities of its controller service.
    pub controller_capabilities: Vec<String>,
    /// Its health, as seen from its last calls.
    pub last_calls: LastCalls,
}

/// How the driver answered its last calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastCalls {
    /// How many seconds ago the last successful call ended.
    pub answered_seconds_ago: Option<u64>,
    /// The last call that failed.
    pub failure: Option<LastFailure>,
}

/// The leader election.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderStatus {
    /// Whether this process leads; always true without leader election.
    pub leads: bool,
    /// The name of this process in the Lease.
    pub identity: String,
    /// `namespace/name` of the Lease; empty without leader election.
    pub lease: String,
}

impl DriverStatus {
    /// The state of a driver that is called.
    pub fn of(driver: &Driver) -> Self {
        let (success, failure) = driver.last_calls().read();
        let failure = failure.map(|FailedCall { code, message, at }| LastFailure {
            code: code.to_owned(),
            message,
            seconds_ago: at.elapsed().as_secs(),
        });
        let answered_seconds_ago = success.map(|at| at.elapsed().as_secs());
        let Capabilities { plugin, controller } = driver.capabilities();
        let plugin = plugin.iter().map(|it| it.as_str_name().to_owned());
        let controller = controller.iter().map(|it| it.as_str_name().to_owned());
        Self {
            name: driver.name().to_owned(),
            is_connected: driver.connection().is_up(),
            plugin_capabilities: plugin.collect(),
            controller_capabilities: controller.collect(),
            last_calls: LastCalls { answered_seconds_ago, failure },
        }
    }
}

impl Status {
    /// The JSON.
    pub fn to_json(&self) -> String {
        // Cannot fail: all keys of maps are texts.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// Reads a query string: `claim=NAMESPACE/NAME` and `volume=NAME`. Other parameters are ignored.
pub fn query(text: &str) -> Query {
    let parameter = |name: &str| {
        let value = text.split('&').find_map(|it| it.strip_prefix(name)?.strip_prefix('='))?;
        let decoded = percent_encoding::percent_decode_str(value).decode_utf8_lossy();
        Some(decoded.into_owned()).filter(|value| !value.is_empty())
    };
    Query { claim: parameter("claim"), volume: parameter("volume") }
}

#[cfg(test)]
mod tests;
