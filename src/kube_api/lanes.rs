//! Three lanes to the API server that never starve one another.
//!
//! Owns which traffic obeys which rule:
//!
//! | lane | gate | bucket | writes at once | for |
//! |---|---|---|---|---|
//! | `leases` | no | no | any number | the Lease, which must be renewed whatever else goes on |
//! | `objects` | writes | where a rate is given | bounded | claims, volumes and all other reads and writes |
//! | `events` | no | its own, of the same numbers | one | events, which may be late |
//!
//! All lanes send the User-Agent, keep the deadline, obey `Retry-After` and count their requests.
//! Promises that a request waits only for others of its lane. Leaves the rules themselves to
//! [`super::layers`].

use std::{sync::Arc, time::Duration};

pub use super::layers::throttle::RateLimit;
pub use super::layers::user_agent::user_agent;
use super::{
    client::Client,
    layers::{
        deadline::Deadline, gate::Gated, in_flight::InFlight, layer, layer_if,
        request_metrics::RequestMetrics, retry_after::RetryAfter, throttle::Throttle,
        user_agent::UserAgent,
    },
    transport::Transport,
};
use crate::{
    metrics::Metrics,
    runtime::{Gate, Random},
};

/// What a user may set about requests.
#[derive(Debug, Clone)]
pub struct LaneSettings {
    /// Who asks; see [`user_agent`].
    pub user_agent: String,
    /// The rate of requests that are no watches; none means unlimited.
    pub qps: Option<RateLimit>,
    /// How long an answer may take.
    pub deadline: Duration,
    /// How many writes of objects may be under way at once.
    pub max_writes: usize,
}

impl Default for LaneSettings {
    /// No rate, half a minute, 32 writes.
    fn default() -> Self {
        Self {
            user_agent: user_agent(env!("CARGO_PKG_VERSION")),
            qps: None,
            deadline: Duration::from_secs(30),
            max_writes: 32,
        }
    }
}

/// The program's ways to the API server.
#[derive(Debug, Clone)]
pub struct Lanes {
    /// For the Lease alone.
    pub leases: Client,
    /// For everything that is neither Lease nor event.
    pub objects: Client,
    /// For events.
    pub events: Client,
}

/// What one lane obeys beyond the rules for all.
#[derive(Default)]
struct Rules {
    throttle: Option<Throttle>,
    in_flight: Option<InFlight>,
    gate: Option<Gated>,
}

impl Lanes {
    /// Lanes on `transport`; no write leaves on `objects` while `gate` is shut.
    pub fn new(
        transport: Transport,
        settings: LaneSettings,
        gate: Gate,
        random: Arc<dyn Random>,
        metrics: &Metrics,
    ) -> Self {
        let bucket = || settings.qps.map(Throttle::new);
        let lane = |rules| {
            let service = stack(transport.clone(), &settings, metrics, rules);
            Client::new(service, Arc::clone(&random))
        };
        Self {
            leases: lane(Rules::default()),
            objects: lane(Rules {
                throttle: bucket(),
                in_flight: Some(InFlight::new(settings.max_writes)),
                gate: Some(Gated(gate)),
            }),
            events: lane(Rules {
                throttle: bucket(),
                in_flight: Some(InFlight::new(1)),
                gate: None,
            }),
        }
    }
}

/// Puts the rules before `transport`, the innermost first.
fn stack(
    transport: Transport,
    settings: &LaneSettings,
    metrics: &Metrics,
    rules: Rules,
) -> Transport {
    let service = layer(RequestMetrics(metrics.api.clone()), transport);
    let service = layer(Deadline(settings.deadline), service);
    let service = layer_if(rules.gate, service);
    let service = layer_if(rules.in_flight, service);
    let service = layer_if(rules.throttle, service);
    let service = layer(RetryAfter, service);
    layer(UserAgent::new(&settings.user_agent), service)
}
