//! The HTTP servers that the flags ask for: metrics and health checks on one address, the status
//! on another. Both run until the end, so that a shutdown can be observed.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::future::{Either, join_all, select, try_join_all};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{AppError, Base, Program};
use crate::{
    flags,
    flags::{Flags, VERSION},
    http::{Routes, Server},
    leader::CandidateIdentity,
    metrics::Metrics,
    runtime::Tasks,
    status,
    status::{DriverStatus, LeaderStatus, Status},
};

/// The time for open requests to the HTTP servers at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// What the check of leader election says of a Lease that was not renewed in time. The text is
/// external-provisioner's, where the Lease's name is empty as well.
const NOT_RENEWED: &str = "failed election to renew leadership on lease ";

impl Program<'_> {
    /// The HTTP servers, which listen.
    pub(super) async fn servers(&self) -> Result<Servers, AppError> {
        let flags = self.base.flags;
        let metrics = flags.http.address().map(|_| self.routes());
        Servers::bind(flags, metrics, || self.status_routes()).await
    }

    /// Metrics, health checks and the CPU profile.
    fn routes(&self) -> Routes {
        let Base { flags, env, driver, .. } = &self.base;
        let routes = routes(&flags.http, &env.metrics, driver.name(), self.readiness());
        if flags.http.endpoint.is_none() || flags.leader_election().is_none() {
            return routes;
        }
        let gate = self.base.gate.clone();
        let check = move || if gate.ran_out() { Err(NOT_RENEWED.to_owned()) } else { Ok(()) };
        routes.check(flags::LEADER_ELECTION_CHECK, check)
    }

    /// The status.
    fn status_routes(&self) -> Routes {
        let (driver, clock) = (self.base.driver.clone(), Arc::clone(&self.base.env.clock));
        let missing_permissions = Arc::clone(&self.missing_permissions);
        let (leader, readiness) = (self.leader_status(), self.readiness());
        let overview = self.controller.overview();
        let page = move |query: &str| {
            let status = Status {
                version: VERSION.to_owned(),
                time: format!("{:.0}", clock.wall()),
                driver: DriverStatus::of(&driver),
                leader: leader(),
                not_ready: readiness().err(),
                missing_permissions: missing_permissions.lock().clone(),
                work: overview(&status::query(query)),
            };
            status.to_json()
        };
        Routes::status(status::JSON_PATH, page)
    }

    /// Returns a function that reads the state of leader election.
    fn leader_status(&self) -> impl Fn() -> LeaderStatus + Send + Sync + use<> {
        let host = &self.base.env.host;
        let identity = CandidateIdentity::new(&host.name, host.pod_uid.as_deref());
        let lease = self.base.lease_name().map(|(namespace, name)| format!("{namespace}/{name}"));
        let is_leader = self.is_leader.subscribe();
        move || LeaderStatus {
            leads: *is_leader.borrow(),
            identity: identity.name().to_owned(),
            lease: lease.clone().unwrap_or_default(),
        }
    }
}

/// Metrics, health checks and the CPU profile of a process for this driver.
pub fn routes(
    flags: &flags::Http,
    metrics: &Metrics,
    driver: &str,
    readiness: impl Fn() -> Result<(), String> + Send + Sync + 'static,
) -> Routes {
    let scrapes = metrics.serve(driver);
    let metrics = metrics.clone();
    let routes = Routes::new(&flags.metrics_path, move || scrapes.count(|| metrics.text()))
        .check("/healthz", || Ok(()))
        .check("/readyz", readiness);
    if flags.pprof { routes.profile() } else { routes }
}

/// The HTTP servers, which listen.
pub struct Servers(Vec<Server>);

impl Servers {
    /// The servers that the flags ask for, with these routes.
    ///
    /// # Errors
    /// An address cannot be listened on.
    pub async fn bind(
        flags: &Flags,
        metrics: Option<Routes>,
        status: impl FnOnce() -> Routes,
    ) -> Result<Self, AppError> {
        let metrics = flags.http.address().zip(metrics);
        let status = flags.http.status.as_deref().map(|address| (address, status()));
        let servers = metrics.into_iter().chain(status);
        let listening = servers.map(|(address, routes)| Server::bind(address, routes));
        Ok(Self(try_join_all(listening).await?))
    }

    /// Serves while `work` runs, and then until open requests have ended, up to a second.
    pub async fn serve_beside<T>(self, work: impl Future<Output = T>, tasks: &Tasks) -> T {
        let stop = CancellationToken::new();
        let serve = |server: Server| server.run(tasks.clone(), stop.clone());
        let serving = join_all(self.0.into_iter().map(serve));
        match select(pin!(work), serving).await {
            Either::Left((outcome, serving)) => {
                stop.cancel();
                let _ = timeout(SHUTDOWN_TIMEOUT, serving).await;
                outcome
            }
            // There is no server.
            Either::Right((_, work)) => work.await,
        }
    }
}
