//! `kubectl csi-provisioner status`: shows what the leader works on.
//!
//! Contains the command's arguments and its loop. The status is the leader's own (`--status-endpoint`):
//! `pod` finds the leader by its Lease and reads its status through a port-forward; `waiting` finds the claims
//! that the leader does not know; `table` shows them. Nothing is written.

mod pod;
mod table;
mod waiting;

use std::{sync::Arc, time::Duration};

use clap::{
    Args,
    builder::{StringValueParser, TypedValueParser as _},
};
use csi_provisioner::{
    plain_text::escaped,
    runtime::{Clock, Gate, SystemClock},
    status::Status,
};
use serde::Serialize;

use self::waiting::Listed;
use crate::{
    connection::{ApiServer, client_over},
    fetch::{fetch_status, with_host},
    subcommand::{Format, Output},
};

/// The exit code if there is no status to show.
pub const FAILED: u8 = 2;

/// The time between two tables of `--watch`.
const INTERVAL: Duration = Duration::from_secs(5);

/// Clears a terminal.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// The parsed arguments.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = "Exit code: 0 shown, 2 there is no status")]
pub struct Request {
    /// `--driver`: whose leader to ask.
    #[arg(
        long,
        value_name = "name",
        required_unless_present = "address",
        help = "The CSI driver; its leader is found by the Lease"
    )]
    pub driver: Option<String>,
    /// `--leader-election-namespace`: the namespace of the Lease.
    #[arg(
        long = "leader-election-namespace",
        value_name = "name",
        help = "Namespace of the Lease [default: the pod's, else the only one that has it]"
    )]
    pub lease_namespace: Option<String>,
    /// `--status-endpoint`: the address to ask, instead of the leader's pod.
    #[arg(
        long = "status-endpoint",
        value_name = "address",
        value_parser = StringValueParser::new().map(with_host),
        help = "Asks this address instead, such as :8090 in the leader's own pod"
    )]
    pub address: Option<String>,
    /// The API server.
    #[command(flatten)]
    pub server: ApiServer,
    /// `--watch`: show it again and again.
    #[arg(long, short, help = "Shows it again every 5 s, until it is interrupted")]
    pub watch: bool,
    /// `--output`.
    #[command(flatten)]
    pub format: Format,
}

/// What is shown.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    status: Status,
    /// The claims that wait for a pod that uses them, as `namespace/name`; `None` where only the process is
    /// asked, and not the cluster.
    #[serde(skip_serializing_if = "Option::is_none", rename = "claimsWithoutConsumer")]
    without_consumer: Option<Vec<String>>,
    /// Why those cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    unlisted: Option<String>,
}

/// Reads the status and returns what to print. With `--watch` it returns only if the first one cannot be
/// read; until then it passes what it has read to `print`.
pub async fn run(
    request: &Request,
    clock: &dyn Clock,
    print: impl Fn(&Output),
) -> Result<Output, String> {
    let mut listed = Listed::default();
    let mut shown = read(request, clock, &mut listed).await;
    let mut has_worked = false;
    while request.watch && (has_worked || shown.is_ok()) {
        has_worked = true;
        print(&again(request, &shown));
        tokio::time::sleep(INTERVAL).await;
        shown = read(request, clock, &mut listed).await;
    }
    Ok(Output::printed(text(request, &shown?), 0))
}

/// One of several tables. A leader that does not answer is shown in its place: another one may be elected.
fn again(request: &Request, shown: &Result<Shown, String>) -> Output {
    let clear = if request.format.is_json { "" } else { CLEAR };
    let text = match shown {
        Ok(shown) => text(request, shown),
        Err(why) if request.format.is_json => return Output::failure(why, 0),
        Err(why) => format!("{}\n", escaped(why)),
    };
    Output::printed(format!("{clear}{text}"), 0)
}

fn text(request: &Request, shown: &Shown) -> String {
    if request.format.is_json {
        // Cannot fail: all keys of maps are texts.
        return serde_json::to_string_pretty(shown).unwrap_or_default() + "\n";
    }
    table::text(shown)
}

async fn read(request: &Request, clock: &dyn Clock, listed: &mut Listed) -> Result<Shown, String> {
    if let Some(address) = &request.address {
        let status = fetch_status(address, "").await?;
        return Ok(Shown { status, without_consumer: None, unlisted: None });
    }
    let gate = Gate::shut(Arc::new(SystemClock));
    let connections = request.server.connect().await?;
    let client = client_over(connections.clone(), gate);
    let driver = request.driver.as_deref().unwrap_or_default();
    let status = pod::status_of_leader(&client, connections.kube(), request, driver, clock).await?;
    let (without_consumer, unlisted) = match listed.current(&client, driver).await {
        Ok(claims) => (Some(claims), None),
        Err(why) => (None, Some(why)),
    };
    Ok(Shown { status, without_consumer, unlisted })
}
