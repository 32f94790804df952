//! `kubectl csi-provisioner release-claims`: lists the claims that have the record of an open call, and
//! releases them.
//!
//! Contains the subcommand's arguments, output and exit codes. It is for a downgrade to a
//! provisioner that does not support the records, with which a claim that has our finalizer would
//! never be deleted. Nothing is written without `--release`, and without `--force` only if no
//! replica leads. The edit belongs to `controller::claims::record_status`. The list names each volume, so
//! that the admin can look for leaks at the driver. Control characters in printed text are escaped.

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use csi_provisioner::{
    controller::{claims::record_status, model::record::dns_name_or_empty},
    kube::{
        ApiError, Client, Edited, Name, Scope,
        objects::{Claim, View as _},
    },
    leader,
    plain_text::escaped,
};
use k8s_openapi::api::coordination::v1::LeaseSpec;

use crate::{
    connection::{ApiServer, list},
    objects::find_lease,
    subcommand::{self, Output},
};

/// The longest duration of a Lease that is waited for, in seconds.
const MAX_WAIT: i32 = 180;

/// The parsed arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub struct Request {
    /// The API server.
    #[command(flatten)]
    pub server: ApiServer,
    /// `--driver`: only this driver's claims; otherwise all.
    #[arg(long, value_name = "name", help = "Only the claims of this CSI driver")]
    pub driver: Option<String>,
    /// `--leader-election-namespace`: the namespace of the Leases; by default the pod's own.
    #[arg(
        long = "leader-election-namespace",
        value_name = "name",
        help = "Where the Leases of the replicas are; outside a pod --release needs it [default: the pod's namespace]"
    )]
    pub lease_namespace: Option<String>,
    /// `--release`: release the claims.
    #[arg(long, help = "Take finalizer and record off the claims")]
    pub release: bool,
    /// `--force`: even while a replica leads, or if that can't be determined.
    #[arg(long, help = "Even while a replica leads, or when that is unknown")]
    pub force: bool,
}

/// The exit code if something could not be read or released.
pub const FAILED: u8 = 1;

/// Text for a terminal: one line, with control characters escaped.
fn printable(text: &str) -> String {
    escaped(text).to_string()
}

fn claim_key(claim: &Claim) -> String {
    format!("{}/{}", claim.namespace(), claim.name())
}

/// A claim with a record.
struct RecordedClaim {
    claim: Claim,
    driver: String,
    volume: String,
}

/// Lists claims, and releases them with `--release`. `namespace`: that of the Leases; empty if
/// unknown.
pub async fn run(client: &Client, request: &Request, namespace: &str) -> Result<Output, String> {
    let claims = recorded(client, request.driver.as_deref()).await;
    let claims = claims.map_err(|error| format!("cannot list claims: {error}"))?;
    let mut text = table(&claims);
    let (mut errors, mut led) = (Vec::new(), BTreeMap::new());
    for recorded in claims.iter().filter(|_| request.release) {
        let driver = recorded.driver.as_str();
        if !request.force && !led.contains_key(driver) {
            led.insert(driver, check_no_leader(client, namespace, driver).await);
        }
        let name = claim_key(&recorded.claim);
        let released = match led.get(driver) {
            Some(Err(why)) => Err(why.clone()),
            _ => release(client, &recorded.claim).await,
        };
        match released {
            Ok(()) => text += &[&printable(&name), " released\n"].concat(),
            Err(why) => errors.push(printable(&format!("{name}: {why}"))),
        }
    }
    if !request.release && !claims.is_empty() {
        text.push_str("Nothing was changed; --release takes finalizer and record off.\n");
    }
    let exit_code = if errors.is_empty() { 0 } else { FAILED };
    Ok(Output { text, errors, exit_code })
}

async fn recorded(client: &Client, driver: Option<&str>) -> Result<Vec<RecordedClaim>, ApiError> {
    let claims = list(client, &Scope::all(), |claim| record_status::read(claim).is_some()).await?;
    let recorded = claims.into_iter().filter_map(RecordedClaim::of);
    Ok(recorded.filter(|it| driver.is_none_or(|name| name == it.driver)).collect())
}

impl RecordedClaim {
    fn of(claim: Claim) -> Option<Self> {
        let record = record_status::read(&claim)?;
        let named = claim.annotation("volume.kubernetes.io/storage-provisioner");
        let driver = if record.driver.is_empty() {
            named.unwrap_or_default().to_owned()
        } else {
            record.driver
        };
        Some(Self { claim, driver, volume: record.volume })
    }

    /// The record is text of the claim's user, so only valid names are printed.
    fn columns(&self) -> [String; 5] {
        let deleted = self.claim.metadata.deletion_timestamp.as_ref();
        [
            self.claim.namespace().to_owned(),
            self.claim.name().to_owned(),
            dns_name_or_empty(&self.driver).to_owned(),
            dns_name_or_empty(&self.volume).to_owned(),
            deleted.map(|time| time.0.to_string()).unwrap_or_default(),
        ]
        .map(|text| if text.is_empty() { "-".to_owned() } else { printable(&text) })
    }
}

/// The table: headings, and one line a claim.
fn table(claims: &[RecordedClaim]) -> String {
    if claims.is_empty() {
        return "No claim carries the record of an open call.\n".to_owned();
    }
    let headings = ["NAMESPACE", "CLAIM", "DRIVER", "VOLUME", "DELETED"];
    subcommand::table(&headings, claims.iter().map(RecordedClaim::columns).collect())
}

async fn release(client: &Client, claim: &Claim) -> Result<(), String> {
    let name =
        Name::namespaced(claim.namespace(), claim.name()).map_err(|error| error.to_string())?;
    match client.edit::<Claim>(name, claim.uid(), record_status::remove).await {
        Ok(Edited::Written(_) | Edited::Unchanged(_) | Edited::Gone) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Fails while a replica holds the driver's Lease, because it would record its calls again. The
/// namespace is never guessed, and a Lease that is not there tells nothing: it may be elsewhere, or the
/// provisioner runs without leader election.
async fn check_no_leader(client: &Client, namespace: &str, driver: &str) -> Result<(), String> {
    if driver.is_empty() {
        return Err(cannot_tell("neither the record nor the claim names a driver"));
    }
    if namespace.is_empty() {
        return Err(cannot_tell(
            "nothing says in which namespace its Lease is: give --leader-election-namespace",
        ));
    }
    let name = leader::lease_name(driver);
    let first = read_lease(client, namespace, &name).await?;
    let holder = leader::holder(&first);
    if holder.is_empty() {
        return Ok(());
    }
    let leads = || {
        Err(format!(
            "{holder} leads by the Lease {namespace}/{name}: scale the provisioner to 0 first, or use --force"
        ))
    };
    // As in leader election: its times are of another clock, so whoever does not renew it for its duration
    // leads no more.
    let Some(seconds @ 0..=MAX_WAIT) = first.lease_duration_seconds else { return leads() };
    for _ in 0..=seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if read_lease(client, namespace, &name).await? != first {
            return leads();
        }
    }
    Ok(())
}

async fn read_lease(client: &Client, namespace: &str, name: &str) -> Result<LeaseSpec, String> {
    let lease = find_lease(client, namespace, name).await.map_err(|error| cannot_tell(&error))?;
    let missing = || cannot_tell(&format!("there is no Lease {namespace}/{name}"));
    Ok(lease.ok_or_else(missing)?.spec.unwrap_or_default())
}

fn cannot_tell(why: &str) -> String {
    format!("cannot tell whether a replica leads ({why}); --force releases all the same")
}

#[cfg(test)]
mod tests;
