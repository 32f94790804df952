//! Shadow mode beside the provisioner of a scenario.
//!
//! Owns how the process in shadow mode is started, and what its results must be: each PersistentVolume is
//! compared, and nothing is unexplained. As an outcome that passes has the recorded PersistentVolumes, they
//! are those of external-provisioner.

use std::{path::Path, time::Duration};

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    invocation::Invocation,
    verdict::{Detail, Difference},
    web,
};
use crate::driver::Scripted;

/// The name of the process, and of the command that it runs.
pub(super) const SHADOW: &str = "shadow";

/// How long results may take once the scenario is over.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often they are looked at.
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
    let is = |flag: &String, names: &[&str]| names.iter().any(|name| flag.starts_with(name));
    if main.arguments.iter().any(|flag| is(flag, &["--node-deployment"])) {
        return None;
    }
    let (name, capabilities) = driver.identity();
    let own = [
        format!("--driver={name}"),
        format!("--capabilities={}", capabilities.join(",")),
        format!("--status-endpoint=127.0.0.1:{port}"),
    ];
    let kept = main.arguments.iter().filter(|flag| !is(flag, &LEFT_OUT)).cloned();
    let mut environment = main.environment.clone();
    environment.insert("KUBECONFIG".to_owned(), kubeconfig.display().to_string());
    let arguments = [SHADOW.to_owned()].into_iter().chain(own).chain(kept).collect();
    Some(Invocation { arguments, environment, hostname: None })
}

/// How many claims have a PersistentVolume that was provisioned for them.
pub(super) fn served(claims: &[Value], volumes: &[Value]) -> usize {
    let uid = |object: &Value, pointer| object.pointer(pointer).cloned().unwrap_or_default();
    let is_provisioned = |volume: &&Value| {
        let annotations = volume.pointer("/metadata/annotations");
        annotations.is_some_and(|all| all.get("pv.kubernetes.io/provisioned-by").is_some())
    };
    let provisioned: Vec<_> =
        volumes.iter().filter(is_provisioned).map(|it| uid(it, "/spec/claimRef/uid")).collect();
    // A claim that was created with its volume was not served.
    let unbound = claims.iter().filter(|claim| claim.pointer("/spec/volumeName").is_none());
    unbound.filter(|claim| provisioned.contains(&uid(claim, "/metadata/uid"))).count()
}

/// What shadow mode found beside a scenario.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// What is unexplained, and what was not compared.
    pub(super) faults: Vec<String>,
    /// The results other than `same`.
    pub(super) rows: Vec<Value>,
}

/// Waits until everything is compared.
pub(super) async fn findings(port: u16, volumes: usize) -> Findings {
    let began = Instant::now();
    loop {
        let Some(report) = report(port).await else {
            let faults = vec!["shadow mode has no results".to_owned()];
            return Findings { faults, rows: Vec::new() };
        };
        let compared = compared(&report);
        let missing = (compared < volumes)
            .then(|| format!("{compared} of {volumes} PersistentVolumes are compared"));
        if missing.is_none() || began.elapsed() > PATIENCE {
            let faults = missing.into_iter().chain(unexplained(&report)).collect();
            return Findings { faults, rows: rows(&report).cloned().collect() };
        }
        sleep(POLL_INTERVAL).await;
    }
}

async fn report(port: u16) -> Option<Value> {
    let (_, body) = web::get(port, "/status.json").await?;
    let status: Value = serde_json::from_str(&body).ok()?;
    status.get("shadow").cloned()
}

/// How many claims with a PersistentVolume were compared.
fn compared(report: &Value) -> usize {
    let totals = report.get("totals").and_then(Value::as_array);
    let of_claims = totals.into_iter().flatten().filter(|total| {
        let subject = total.get("subject").and_then(Value::as_str);
        subject.is_some_and(|subject| ["volume", "servedThere"].contains(&subject))
    });
    let counts = of_claims.filter_map(|total| total.get("count")?.as_u64());
    usize::try_from(counts.sum::<u64>()).unwrap_or(usize::MAX)
}

fn unexplained(report: &Value) -> Vec<String> {
    let is_unexplained = |row: &&Value| row.get("agreement").is_some_and(|it| it == "unexplained");
    rows(report).filter(is_unexplained).map(ToString::to_string).collect()
}

fn rows(report: &Value) -> impl Iterator<Item = &Value> {
    report.get("rows").and_then(Value::as_array).into_iter().flatten()
}

/// The faults as a difference of the scenario.
pub(super) fn difference(faults: Vec<String>) -> Option<Difference> {
    let detail = Detail::Values(faults);
    (detail != Detail::Values(Vec::new())).then(|| Difference { part: SHADOW.to_owned(), detail })
}
