//! Lanes: clients of the API server that do not delay one another.
//!
//! A request waits only for requests of its own lane. The lanes differ in their layers:
//!
//! | lane | gate | token bucket | concurrent writes | for |
//! |---|---|---|---|---|
//! | `leases` | no | no | unlimited | the Lease, which must be renewed under any load |
//! | `objects` | writes | if a rate is set | limited | claims, volumes and all other reads and writes |
//! | `capacity` | writes | its own, unless disabled | limited | CSIStorageCapacity objects, of which there may be many |
//! | `reviews` | no | no | unlimited | reviews of our own rights |
//! | `events` | no | its own, with the rate of `objects` | limited | events, which give way to writes of `objects` |
//!
//! On `leases` a request without an answer is sent again over a new connection. All lanes have a
//! deadline, obey `Retry-After` and count their requests. The layers are in [`crate::kube::stack`].

use std::{sync::Arc, time::Duration};

use tokio::sync::Notify;

use super::Client;
pub use crate::kube::stack::throttle::RateLimit;
use crate::{
    kube::{
        connection::transport::Transport,
        events,
        stack::{
            deadline::Deadline,
            forbidden::Forbidden,
            gate::Gated,
            hedge::Hedge,
            in_flight::{InFlight, WriteLoad},
            layer,
            request_log::RequestLog,
            request_metrics::RequestMetrics,
            retry_after::RetryAfter,
            throttle::Throttle,
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
    /// After how long without an answer a request for the Lease is sent again.
    pub lease_patience: Duration,
    /// How many writes a lane may have in flight at once.
    pub max_writes: usize,
}

impl Default for LaneSettings {
    /// No rates, a deadline of 30 s, 32 writes, and a hedge that fits the default times of leader
    /// election.
    fn default() -> Self {
        Self {
            qps: None,
            capacity_qps: None,
            deadline: Duration::from_secs(30),
            lease_patience: Duration::from_millis(1250),
            max_writes: 32,
        }
    }
}

/// One client per lane.
#[derive(Debug, Clone)]
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

/// The lane of events. Its user gives way to the writes of objects.
#[derive(Debug, Clone)]
pub struct EventLane {
    /// Writes events.
    pub client: Client,
    /// The writes of the lane `objects`.
    pub object_writes: WriteLoad,
}

/// The layers in which lanes differ.
#[derive(Default)]
struct LaneLayers {
    throttle: Option<Throttle>,
    in_flight: Option<InFlight>,
    gate: Option<Gated>,
    forbidden: Option<Forbidden>,
    hedge: Option<Hedge>,
}

impl Lanes {
    /// Lanes on `transport`; `objects` and `capacity` send no write while `gate` is shut.
    pub fn new(
        transport: Transport,
        settings: LaneSettings,
        gate: Gate,
        random: Arc<dyn Random>,
        metrics: &Metrics,
    ) -> Self {
        let common = Common { transport, settings, random, metrics: metrics.api.clone() };
        let forbidden = Arc::new(Notify::new());
        let notify_forbidden = || Some(Forbidden(Arc::clone(&forbidden)));
        let object_writes = InFlight::new(common.settings.max_writes);
        let object_load = object_writes.load();
        Self {
            leases: common.lane(LaneLayers {
                forbidden: notify_forbidden(),
                hedge: Some(Hedge(common.settings.lease_patience)),
                ..LaneLayers::default()
            }),
            reviews: common.lane(LaneLayers::default()),
            objects: common.lane(LaneLayers {
                throttle: common.throttle(common.settings.qps),
                in_flight: Some(object_writes),
                gate: Some(Gated(gate.clone())),
                forbidden: notify_forbidden(),
                hedge: None,
            }),
            capacity: common.lane(LaneLayers {
                throttle: common.throttle(common.settings.capacity_qps),
                in_flight: Some(InFlight::new(common.settings.max_writes)),
                gate: Some(Gated(gate)),
                forbidden: notify_forbidden(),
                hedge: None,
            }),
            events: EventLane {
                client: common.lane(LaneLayers {
                    throttle: common.throttle(common.settings.qps),
                    in_flight: Some(InFlight::new(events::MAX_CONCURRENT_WRITES)),
                    forbidden: notify_forbidden(),
                    ..LaneLayers::default()
                }),
                object_writes: object_load,
            },
            forbidden,
        }
    }
}

/// The parameters that all lanes share.
struct Common {
    transport: Transport,
    settings: LaneSettings,
    random: Arc<dyn Random>,
    metrics: ApiMetrics,
}

impl Common {
    /// A new throttle, if there is a rate.
    fn throttle(&self, rate: Option<RateLimit>) -> Option<Throttle> {
        rate.map(|qps| Throttle::new(qps, Some(self.metrics.clone())))
    }

    /// Wraps the transport in the layers, the innermost first.
    fn lane(&self, layers: LaneLayers) -> Client {
        let service = layer(RequestLog, self.transport.clone());
        let service = layer(RequestMetrics(self.metrics.clone()), service);
        let service = layer(layers.forbidden, service);
        let service = layer(layers.hedge, service);
        let service = layer(Deadline(self.settings.deadline), service);
        let service = layer(layers.gate, service);
        let service = layer(layers.in_flight, service);
        let service = layer(layers.throttle, service);
        let service = layer(RetryAfter(self.metrics.clone()), service);
        Client::new(Transport::new(service), Arc::clone(&self.random))
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use serde_json::json;

    use super::*;
    use crate::{
        kube::{
            client::name::Name,
            error::ApiError,
            objects::Volume,
            testing::{Answer, Server, paused_clock, random},
        },
        metrics::Metrics,
        runtime::GateShut,
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
        let lanes =
            Lanes::new(server.transport.clone(), settings, gate.clone(), random(), &metrics);
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
        let (first, second) = tokio::join!(write(&lanes.objects), write(&lanes.objects));
        // The first was in flight when the gate shut, the second still waited for its permit.
        assert!(matches!(first, Err(ApiError::GateShut(GateShut::Cut))));
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
    async fn a_retry_takes_a_token_too() {
        let answer = |number| {
            if number == 0 { Answer::status(429).header("retry-after", "1") } else { object() }
        };
        let Fixture { server, lanes, .. } = fixture(slow_rate(), answer);
        write(&lanes.objects).await.unwrap();
        assert_eq!(server.times(), [0, 10]);
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
        join_all((0..=events::MAX_CONCURRENT_WRITES).map(|_| write(&lanes.events.client))).await;
        assert_eq!(
            server.times()[5..],
            [[2; events::MAX_CONCURRENT_WRITES].as_slice(), &[3]].concat()
        );
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
    async fn only_requests_for_the_lease_are_sent_again_without_an_answer() {
        let settings =
            LaneSettings { lease_patience: Duration::from_secs(2), ..LaneSettings::default() };
        let dead_at_first = |number| object().after(if number == 0 { 100 } else { 0 });
        let Fixture { server, lanes, .. } = fixture(settings, dead_at_first);
        write(&lanes.leases).await.unwrap();
        assert_eq!(server.times(), [0, 2]);
        let Fixture { server, lanes, .. } = fixture(settings, dead_at_first);
        assert!(write(&lanes.objects).await.unwrap_err().is_unclear());
        assert_eq!(server.times(), [0]);
    }
}
