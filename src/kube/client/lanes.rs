//! Lanes: clients of the API server that do not delay one another.
//!
//! A request waits only for requests of its own lane. The lanes differ in their layers:
//!
//! | lane | gate | token bucket | concurrent writes | for |
//! |---|---|---|---|---|
//! | `leases` | no | no | unlimited | the Lease, which must be renewed under any load, over new connections |
//! | `objects` | writes | if a rate is set | limited | claims, volumes and all other reads and writes |
//! | `capacity` | writes | its own, unless disabled | limited | CSIStorageCapacity objects; there may be many |
//! | `reviews` | no | no | unlimited | reviews of our own rights |
//! | `events` | no | its own, with the rate of `objects` | limited | events, which give way to writes of `objects` |
//!
//! `leases` has a short deadline and opens a connection for each request, so that none waits for the
//! answer of a peer that is gone. All lanes have a deadline, obey `Retry-After`, count their requests
//! and share the budget for large answers.
//! The layers are in [`crate::kube::layers`].

use std::{sync::Arc, time::Duration};

use tokio::sync::Notify;
use tower::{ServiceBuilder, layer::layer_fn};

use super::Client;
pub use crate::kube::layers::throttle::RateLimit;
use crate::{
    kube::{
        connection::Connections,
        layers::{
            ApiService,
            deadline::deadline,
            gate::gated,
            in_flight::{InFlight, limited},
            refusals::refusals,
            requests::reported,
            retry_after::retry_after,
            throttle::{Throttle, takes_token, throttled},
            whole_answers::{Budget, whole_answers},
        },
    },
    metrics::{ApiMetrics, Metrics},
    runtime::{Gate, Random},
};

/// The settings of all lanes.
#[derive(Debug, Clone, Copy)]
pub struct LaneSettings {
    /// The rate of requests other than watches and the later pages of lists; `None` means unlimited.
    pub qps: Option<RateLimit>,
    /// The rate of requests for CSIStorageCapacity objects; `None` means unlimited.
    pub capacity_qps: Option<RateLimit>,
    /// How long an answer may take.
    pub deadline: Duration,
    /// How long the answer to a request for the Lease may take.
    pub lease_deadline: Duration,
    /// How many writes a lane may have in flight at once.
    pub max_writes: usize,
}

impl Default for LaneSettings {
    /// No rates, a deadline of 30 s, 32 writes, and a deadline for the Lease that fits the default times
    /// of leader election.
    fn default() -> Self {
        Self {
            qps: None,
            capacity_qps: None,
            deadline: Duration::from_secs(30),
            lease_deadline: Duration::from_secs(5),
            max_writes: 32,
        }
    }
}

/// One client per lane.
#[derive(Clone)]
pub struct Lanes {
    /// For the Lease alone.
    pub leases: Client,
    /// For reviews of our own rights.
    pub reviews: Client,
    /// For everything that is neither Lease, CSIStorageCapacity, review nor event.
    pub objects: Client,
    /// For CSIStorageCapacity objects.
    pub capacity: Client,
    /// For events.
    pub events: EventLane,
    /// Notified of each answer 403, on all lanes but `reviews`.
    pub forbidden: Arc<Notify>,
}

/// How many events are written at once: a quarter more than writes of objects by default, so that those that
/// gave way catch up.
pub(in crate::kube) const MAX_CONCURRENT_WRITES: usize = 40;

/// The lane of events. Its user gives way to the writes of objects.
#[derive(Clone)]
pub struct EventLane {
    /// Writes events.
    pub client: Client,
    /// The writes of the lane `objects`.
    pub object_writes: InFlight,
}

impl Lanes {
    /// Lanes on `connections`; `objects` and `capacity` send no write while `gate` is shut. Must be called
    /// within a runtime.
    pub fn new(
        connections: Connections,
        settings: LaneSettings,
        gate: Gate,
        random: Arc<dyn Random>,
        metrics: &Metrics,
    ) -> Self {
        let Connections { kept, fresh } = connections;
        let LaneSettings { qps, capacity_qps, deadline, lease_deadline, max_writes } = settings;
        let (metrics, budget) = (metrics.api.clone(), Budget::default());
        let common = Common { random, metrics, budget, forbidden: Arc::default() };
        let of_reviews = Common { forbidden: Arc::default(), ..common.clone() };
        let (object_writes, capacity_writes) =
            (InFlight::new(max_writes), InFlight::new(max_writes));
        let event_writes = InFlight::new(MAX_CONCURRENT_WRITES);
        let lane = |rate, writes: &InFlight, gate| {
            common.lane(kept.clone(), deadline, rate, writes.clone(), gate)
        };
        Self {
            leases: common.lane(fresh, lease_deadline, None, InFlight::unlimited(), None),
            reviews: of_reviews.lane(kept.clone(), deadline, None, InFlight::unlimited(), None),
            objects: lane(qps, &object_writes, Some(gate.clone())),
            capacity: lane(capacity_qps, &capacity_writes, Some(gate)),
            events: EventLane { client: lane(qps, &event_writes, None), object_writes },
            forbidden: common.forbidden,
        }
    }
}

/// What lanes share.
#[derive(Clone)]
struct Common {
    random: Arc<dyn Random>,
    metrics: ApiMetrics,
    budget: Budget,
    forbidden: Arc<Notify>,
}

impl Common {
    /// A client on `connections`, below the layers: the outermost first.
    fn lane(
        &self,
        connections: ApiService,
        deadline: Duration,
        rate: Option<RateLimit>,
        writes: InFlight,
        gate: Option<Gate>,
    ) -> Client {
        let Self { random, metrics, budget, forbidden } = self.clone();
        let (retried, counted) = (metrics.clone(), metrics.clone());
        let throttle = rate.map(|rate| {
            let throttle = Arc::new(Throttle::new(rate, Some(metrics)));
            layer_fn(move |next| throttled(Arc::clone(&throttle), takes_token, next))
        });
        let gate = gate.map(|it| layer_fn(move |next| gated(it.clone(), next)));
        let service = ServiceBuilder::new()
            .layer_fn(move |next| refusals(Arc::clone(&forbidden), next))
            .layer_fn(move |next| retry_after(retried.clone(), next))
            .option_layer(throttle)
            .layer_fn(move |next| limited(writes.clone(), next))
            .option_layer(gate)
            .layer_fn(move |next| self::deadline(deadline, next))
            .layer_fn(move |next| whole_answers(budget.clone(), next))
            .layer_fn(move |next| reported(counted.clone(), next))
            .service(connections);
        Client::new(ApiService::new(service), random)
    }
}

#[cfg(test)]
mod tests {
    use futures::future::{join, join_all};
    use serde_json::json;

    use super::*;
    use crate::{
        kube::{
            error::ApiError,
            name::Name,
            objects::Volume,
            testing::{Answer, Server, random},
        },
        metrics::Metrics,
        runtime::{GateShut, testing::paused_clock},
    };

    struct Fixture {
        server: Server,
        gate: Gate,
        metrics: Metrics,
        lanes: Lanes,
    }

    fn fixture(
        settings: LaneSettings,
        answer: impl Fn(usize) -> Answer + Send + Sync + 'static,
    ) -> Fixture {
        let server = Server::new(move |number, _| answer(number));
        let gate = Gate::open(paused_clock());
        let metrics = Metrics::new();
        let lanes = Lanes::new(server.connections(), settings, gate.clone(), random(), &metrics);
        Fixture { server, gate, metrics, lanes }
    }

    async fn write(client: &Client) -> Result<Volume, ApiError> {
        client.create(None, &json!({})).await
    }

    async fn read(client: &Client) -> Result<Volume, ApiError> {
        client.get(Name::cluster("pv").unwrap()).await
    }

    fn object() -> Answer {
        Answer::json(200, &json!({}))
    }

    fn slow_rate() -> LaneSettings {
        let rate = Some(RateLimit { qps: 0.1, burst: 1 });
        LaneSettings { qps: rate, capacity_qps: rate, ..LaneSettings::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_shut_gate_stops_writes_of_objects_only() {
        let Fixture { server, gate, lanes, .. } = fixture(LaneSettings::default(), |_| object());
        gate.close();
        let error = write(&lanes.objects).await.unwrap_err();
        assert!(matches!(error, ApiError::GateShut(_)) && !error.is_unclear());
        assert!(server.requests().is_empty());
        assert!(matches!(write(&lanes.capacity).await, Err(ApiError::GateShut(_))));
        assert!(server.requests().is_empty());
        assert!(read(&lanes.objects).await.is_ok());
        assert!(write(&lanes.leases).await.is_ok());
        assert!(write(&lanes.events.client).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_gate_is_checked_again_after_retry_after() {
        let later = |_| Answer::status(429).header("retry-after", "10");
        let Fixture { server, gate, lanes, .. } = fixture(LaneSettings::default(), later);
        gate.open_until(Duration::from_secs(105));
        assert!(matches!(write(&lanes.objects).await, Err(ApiError::GateShut(_))));
        assert_eq!(server.times(), [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_gate_is_checked_after_the_waits_for_a_token_and_a_permit() {
        let Fixture { server, gate, lanes, .. } = fixture(slow_rate(), |_| object());
        gate.open_until(Duration::from_secs(105));
        assert!(write(&lanes.objects).await.is_ok());
        assert!(matches!(write(&lanes.objects).await, Err(ApiError::GateShut(_))));
        assert_eq!(server.times(), [0]);

        let settings = LaneSettings { max_writes: 1, ..LaneSettings::default() };
        let Fixture { server, gate, lanes, .. } = fixture(settings, |_| object().after(10));
        gate.open_until(Duration::from_secs(105));
        let (first, second) = join(write(&lanes.objects), write(&lanes.objects)).await;
        // The first was in flight when the gate shut, the second still waited for its permit.
        assert!(matches!(&first, Err(ApiError::GateShut(GateShut::Cut))));
        assert!(first.unwrap_err().is_unclear());
        assert!(matches!(second, Err(ApiError::GateShut(GateShut::NotStarted))));
        assert_eq!(server.times(), [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn lanes_do_not_delay_one_another() {
        let Fixture { server, lanes, .. } = fixture(slow_rate(), |_| object());
        for lane in
            [&lanes.objects, &lanes.events.client, &lanes.capacity, &lanes.leases, &lanes.leases]
        {
            write(lane).await.unwrap();
        }
        assert_eq!(server.times(), [0, 0, 0, 0, 0]);
        let (events, capacity) = tokio::join!(write(&lanes.events.client), write(&lanes.capacity));
        assert!(events.is_ok() && capacity.is_ok());
        read(&lanes.objects).await.unwrap();
        assert_eq!(server.times()[5..], [10, 10, 10]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_for_capacity_objects_limits_only_them() {
        let rate = Some(RateLimit { qps: 0.1, burst: 1 });
        let settings = LaneSettings { capacity_qps: rate, ..LaneSettings::default() };
        let Fixture { server, lanes, .. } = fixture(settings, |_| object());
        for lane in [&lanes.capacity, &lanes.objects, &lanes.objects, &lanes.capacity] {
            write(lane).await.unwrap();
        }
        assert_eq!(server.times(), [0, 0, 0, 10]);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_before_sending_are_counted_by_reason() {
        let Fixture { lanes, metrics, .. } = fixture(slow_rate(), |number| match number {
            0 => Answer::status(429).header("retry-after", "3"),
            _ => object(),
        });
        write(&lanes.objects).await.unwrap();
        let text = metrics.text();
        for line in [
            "provisioner_api_wait_seconds_sum{reason=\"retry_after\"} 3",
            // The retry's token exists ten seconds after the first one.
            "provisioner_api_wait_seconds_sum{reason=\"rate\"} 7",
            "provisioner_api_wait_seconds_count{reason=\"rate\"} 2",
        ] {
            assert!(text.lines().any(|l| l == line), "missing {line} in {text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_writes_of_objects_and_events_are_limited() {
        let settings = LaneSettings { max_writes: 3, ..LaneSettings::default() };
        let Fixture { server, lanes, .. } = fixture(settings, |_| object().after(1));
        join_all((0..5).map(|_| write(&lanes.objects))).await;
        assert_eq!(server.times(), [0, 0, 0, 1, 1]);
        join_all((0..=MAX_CONCURRENT_WRITES).map(|_| write(&lanes.events.client))).await;
        assert_eq!(server.times()[5..], [[2; MAX_CONCURRENT_WRITES].as_slice(), &[3]].concat());
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_counts_from_the_sending() {
        let settings = LaneSettings {
            deadline: Duration::from_secs(6),
            max_writes: 1,
            ..LaneSettings::default()
        };
        let Fixture { lanes, .. } = fixture(settings, |_| object().after(5));
        let both = tokio::join!(write(&lanes.objects), write(&lanes.objects));
        assert!(both.0.is_ok() && both.1.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_for_the_lease_have_a_deadline_of_their_own() {
        let settings =
            LaneSettings { lease_deadline: Duration::from_secs(2), ..LaneSettings::default() };
        let Fixture { server, lanes, .. } = fixture(settings, |_| object().after(3));
        assert!(write(&lanes.leases).await.unwrap_err().is_unclear());
        write(&lanes.objects).await.unwrap();
        assert_eq!(server.times(), [0, 2]);
    }
}
