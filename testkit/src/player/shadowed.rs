//! Shadow mode beside the provisioner of a scenario: each PersistentVolume must be compared, and nothing may be
//! unexplained. As an outcome that passes has the recorded PersistentVolumes, they are those of external-provisioner.

use std::{path::Path, time::Duration};

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::process::Invocation;
use crate::{
    apiserver::tree,
    driver::{Backend as _, Description, Scripted},
    web,
};

/// The name of the process, and of the command that it runs.
pub(super) const SHADOW: &str = "shadow";

/// How long results may take once the scenario is over, and how often they are looked at.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Flags of servers, which a second process cannot have, and those that shadow mode does not know.
const LEFT_OUT: [&str; 3] = ["--http-endpoint", "--metrics-address", "--status-endpoint"];

/// The process in shadow mode beside the one of `main`; `None` where it refuses the flags.
pub(super) fn invocation(
    main: &Invocation,
    driver: &Scripted,
    kubeconfig: &Path,
    port: u16,
) -> Option<Invocation> {
    if main.arguments.iter().any(|flag| flag.starts_with("--node-deployment")) {
        return None;
    }
    let Description { name, plugin, controller } = driver.description();
    let own = [
        SHADOW.to_owned(),
        format!("--driver={name}"),
        format!("--capabilities={}", [plugin, controller].concat().join(",")),
        format!("--status-endpoint=127.0.0.1:{port}"),
    ];
    let kept = main.arguments.iter();
    let kept = kept.filter(|flag| !LEFT_OUT.iter().any(|name| flag.starts_with(name))).cloned();
    let mut environment = main.environment.clone();
    environment.insert("KUBECONFIG".to_owned(), kubeconfig.display().to_string());
    Some(Invocation {
        arguments: own.into_iter().chain(kept).collect(),
        environment,
        hostname: None,
    })
}

/// How many claims have a PersistentVolume that was provisioned for them.
pub(super) fn served(claims: &[Value], volumes: &[Value]) -> usize {
    let made = |it: &&Value| {
        !tree::text(it, &["metadata", "annotations", "pv.kubernetes.io/provisioned-by"]).is_empty()
    };
    let of = |volume| tree::at(volume, &["spec", "claimRef", "uid"]);
    let provisioned: Vec<_> = volumes.iter().filter(made).map(of).collect();
    // A claim that was created with its volume was not served.
    let unbound = claims.iter().filter(|claim| tree::at(claim, &["spec", "volumeName"]).is_null());
    unbound.filter(|claim| provisioned.contains(&tree::at(claim, &["metadata", "uid"]))).count()
}

/// What shadow mode found beside a scenario.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// What is unexplained, and what was not compared.
    pub(super) faults: Vec<String>,
    pub(super) rows: Vec<Value>,
}

/// Waits until everything is compared.
pub(super) async fn findings(port: u16, volumes: usize) -> Findings {
    let began = Instant::now();
    loop {
        let page = web::get(port, "/status.json").await;
        let status = page.and_then(|(_, body)| serde_json::from_str::<Value>(&body).ok());
        let Some(report) = status.and_then(|status| status.get("shadow").cloned()) else {
            let faults = vec!["shadow mode has no results".to_owned()];
            return Findings { faults, rows: Vec::new() };
        };
        // Claims with a PersistentVolume.
        let totals = tree::items(&report, &["totals"]).iter();
        let of_claims = totals
            .filter(|total| ["volume", "servedThere"].contains(&tree::text(total, &["subject"])));
        let compared: u64 = of_claims.filter_map(|total| total.get("count")?.as_u64()).sum();
        let compared = usize::try_from(compared).unwrap_or(usize::MAX);
        if compared < volumes && began.elapsed() <= PATIENCE {
            sleep(POLL_INTERVAL).await;
            continue;
        }
        let missing = (compared < volumes)
            .then(|| format!("{compared} of {volumes} PersistentVolumes are compared"));
        let rows = tree::items(&report, &["rows"]).to_vec();
        let unexplained =
            rows.iter().filter(|row| tree::text(row, &["agreement"]) == "unexplained");
        let faults = missing.into_iter().chain(unexplained.map(ToString::to_string)).collect();
        return Findings { faults, rows };
    }
}
