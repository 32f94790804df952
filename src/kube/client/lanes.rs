//! Lanes to the API server that never starve one another.
//!
//! Owns which traffic obeys which rule:
//!
//! | lane | gate | bucket | writes at once | for |
//! |---|---|---|---|---|
//! | `leases` | no | no | any number | the Lease, which must be renewed whatever else goes on |
//! | `objects` | writes | where a rate is given | bounded | claims, volumes and all other reads and writes |
//! | `capacity` | writes | its own, unless switched off | bounded | CSIStorageCapacity objects, of which there may be many |
//! | `reviews` | no | no | any number | questions about our own rights |
//! | `events` | no | its own, of the same numbers | bounded | events, which may be late |
//!
//! On `leases` a request that is not answered is asked again over a new connection. All lanes send the User-Agent, keep the deadline, obey `Retry-After` and count their requests.
//! Promises that a request waits only for others of its lane. Leaves the rules themselves to
//! [`crate::kube::stack`].

use std::{sync::Arc, time::Duration};

use super::Client;
pub use crate::kube::stack::throttle::RateLimit;
use crate::kube::{
    connection::transport::Transport,
    events,
    stack::{
        anew::Anew, deadline::Deadline, forbidden::Forbidden, gate::Gated, in_flight::InFlight,
        layer, request_log::RequestLog, request_metrics::RequestMetrics, retry_after::RetryAfter,
        throttle::Throttle, user_agent::UserAgent,
    },
};
use tokio::sync::Notify;

use crate::{
    metrics::{ApiMetrics, Metrics},
    runtime::{Gate, Random},
};

/// What a user may set about requests.
#[derive(Debug, Clone, Copy)]
pub struct LaneSettings {
    /// The rate of requests that are no watches; none means unlimited.
    pub qps: Option<RateLimit>,
    /// The same for CSIStorageCapacity objects.
    pub capacity_qps: Option<RateLimit>,
    /// How long an answer may take.
    pub deadline: Duration,
    /// After how long without an answer a request about the Lease is sent again.
    pub lease_patience: Duration,
    /// How many writes of objects may be under way at once.
    pub max_writes: usize,
}

impl Default for LaneSettings {
    /// No rate, half a minute, 32 writes; for the Lease what fits the usual times of an election.
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

/// The program's ways to the API server.
#[derive(Debug, Clone)]
pub struct Lanes {
    /// For the Lease alone.
    pub leases: Client,
    /// For questions about our own rights.
    pub reviews: Client,
    /// For everything that is neither Lease, CSIStorageCapacity, review nor event.
    pub objects: Client,
    /// For CSIStorageCapacity objects.
    pub capacity: Client,
    /// For events.
    pub events: Client,
    /// Told of each request that was forbidden, but for questions about our own rights.
    pub forbidden: Arc<Notify>,
}

/// What one lane obeys beyond the rules for all.
#[derive(Default)]
struct Rules {
    throttle: Option<Throttle>,
    in_flight: Option<InFlight>,
    gate: Option<Gated>,
    forbidden: Option<Forbidden>,
    anew: Option<Anew>,
}

impl Lanes {
    /// Lanes on `transport`; no write leaves on `objects` or `capacity` while `gate` is shut.
    pub fn new(
        transport: Transport,
        settings: LaneSettings,
        gate: Gate,
        random: Arc<dyn Random>,
        metrics: &Metrics,
    ) -> Self {
        let common = Common { transport, settings, random, metrics: metrics.api.clone() };
        let forbidden = Arc::new(Notify::new());
        let noticed = || Some(Forbidden(Arc::clone(&forbidden)));
        Self {
            leases: common.lane(Rules {
                forbidden: noticed(),
                anew: Some(Anew(common.settings.lease_patience)),
                ..Rules::default()
            }),
            reviews: common.lane(Rules::default()),
            objects: common.lane(Rules {
                throttle: common.bucket(common.settings.qps),
                in_flight: Some(InFlight::new(common.settings.max_writes)),
                gate: Some(Gated(gate.clone())),
                forbidden: noticed(),
                anew: None,
            }),
            capacity: common.lane(Rules {
                throttle: common.bucket(common.settings.capacity_qps),
                in_flight: Some(InFlight::new(common.settings.max_writes)),
                gate: Some(Gated(gate)),
                forbidden: noticed(),
                anew: None,
            }),
            events: common.lane(Rules {
                throttle: common.bucket(common.settings.qps),
                in_flight: Some(InFlight::new(events::AT_ONCE)),
                gate: None,
                forbidden: noticed(),
                anew: None,
            }),
            forbidden,
        }
    }
}

/// What all lanes share.
struct Common {
    transport: Transport,
    settings: LaneSettings,
    random: Arc<dyn Random>,
    metrics: ApiMetrics,
}

impl Common {
    /// A bucket of a lane's own, where there is a rate.
    fn bucket(&self, rate: Option<RateLimit>) -> Option<Throttle> {
        rate.map(|qps| Throttle::new(qps, Some(self.metrics.clone())))
    }

    /// Puts the rules before the transport, the innermost first.
    fn lane(&self, rules: Rules) -> Client {
        let way = layer(RequestLog, self.transport.clone());
        let way = layer(RequestMetrics(self.metrics.clone()), way);
        let way = layer(rules.forbidden, way);
        let way = layer(rules.anew, way);
        let way = layer(Deadline(self.settings.deadline), way);
        let way = layer(rules.gate, way);
        let way = layer(rules.in_flight, way);
        let way = layer(rules.throttle, way);
        let way = layer(RetryAfter(self.metrics.clone()), way);
        let way = layer(UserAgent::default(), way);
        Client::new(Transport::new(way), Arc::clone(&self.random))
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

    struct House {
        server: Server,
        gate: Gate,
        metrics: Metrics,
        lanes: Lanes,
    }

    fn house(
        settings: LaneSettings,
        answer: impl Fn(usize) -> Answer + Send + Sync + 'static,
    ) -> House {
        let server = Server::new(move |number, _| answer(number));
        let gate = Gate::open(paused_clock());
        let metrics = Metrics::new().unwrap();
        let lanes =
            Lanes::new(server.transport.clone(), settings, gate.clone(), random(), &metrics);
        House { server, gate, metrics, lanes }
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
        let House { server, gate, lanes, .. } = house(LaneSettings::default(), |_| object());
        gate.close();
        let error = write(&lanes.objects).await.unwrap_err();
        assert!(matches!(error, ApiError::GateShut(_)) && !error.is_unclear());
        assert!(server.seen().is_empty());
        assert!(matches!(write(&lanes.capacity).await, Err(ApiError::GateShut(_))));
        assert!(server.seen().is_empty());
        assert!(read(&lanes.objects).await.is_ok());
        assert!(write(&lanes.leases).await.is_ok());
        assert!(write(&lanes.events).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_gate_is_asked_again_after_the_server_said_later() {
        let later = |_| Answer::status(429).header("retry-after", "10");
        let House { server, gate, lanes, .. } = house(LaneSettings::default(), later);
        gate.open_until(Duration::from_secs(105));
        assert!(matches!(write(&lanes.objects).await, Err(ApiError::GateShut(_))));
        assert_eq!(server.times(), [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_gate_is_asked_after_the_wait_for_a_token_and_for_a_place() {
        let House { server, gate, lanes, .. } = house(slow_rate(), |_| object());
        gate.open_until(Duration::from_secs(105));
        assert!(write(&lanes.objects).await.is_ok());
        assert!(matches!(write(&lanes.objects).await, Err(ApiError::GateShut(_))));
        assert_eq!(server.times(), [0]);

        let settings = LaneSettings { max_writes: 1, ..LaneSettings::default() };
        let House { server, gate, lanes, .. } = house(settings, |_| object().after(10));
        gate.open_until(Duration::from_secs(105));
        let (first, second) = tokio::join!(write(&lanes.objects), write(&lanes.objects));
        // The first was on its way when the gate shut, the second still waited for its place.
        assert!(matches!(first, Err(ApiError::GateShut(GateShut::Cut))));
        assert!(matches!(second, Err(ApiError::GateShut(GateShut::NotStarted))));
        assert_eq!(server.times(), [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn each_lane_waits_for_itself_only() {
        let House { server, lanes, .. } = house(slow_rate(), |_| object());
        for lane in [&lanes.objects, &lanes.events, &lanes.capacity, &lanes.leases, &lanes.leases] {
            write(lane).await.unwrap();
        }
        assert_eq!(server.times(), [0, 0, 0, 0, 0]);
        let (events, capacity) = tokio::join!(write(&lanes.events), write(&lanes.capacity));
        assert!(events.is_ok() && capacity.is_ok());
        read(&lanes.objects).await.unwrap();
        assert_eq!(server.times()[5..], [10, 10, 10]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_of_capacity_objects_is_theirs_alone() {
        let rate = Some(RateLimit { qps: 0.1, burst: 1 });
        let settings = LaneSettings { capacity_qps: rate, ..LaneSettings::default() };
        let House { server, lanes, .. } = house(settings, |_| object());
        for lane in [&lanes.capacity, &lanes.objects, &lanes.objects, &lanes.capacity] {
            write(lane).await.unwrap();
        }
        assert_eq!(server.times(), [0, 0, 0, 10]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_repetition_needs_a_token_too() {
        let answer = |number| {
            if number == 0 { Answer::status(429).header("retry-after", "1") } else { object() }
        };
        let House { server, lanes, .. } = house(slow_rate(), answer);
        write(&lanes.objects).await.unwrap();
        assert_eq!(server.times(), [0, 10]);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_before_the_sending_are_told_by_reason() {
        let House { lanes, metrics, .. } = house(slow_rate(), |number| match number {
            0 => Answer::status(429).header("retry-after", "3"),
            _ => object(),
        });
        write(&lanes.objects).await.unwrap();
        let text = metrics.text();
        for line in [
            "provisioner_api_wait_seconds_sum{reason=\"retry_after\"} 3",
            // The repetition's token is there ten seconds after the first one.
            "provisioner_api_wait_seconds_sum{reason=\"rate\"} 7",
            "provisioner_api_wait_seconds_count{reason=\"rate\"} 2",
        ] {
            assert!(text.lines().any(|l| l == line), "missing {line} in {text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn writes_of_objects_are_bounded_and_so_are_events() {
        let settings = LaneSettings { max_writes: 3, ..LaneSettings::default() };
        let House { server, lanes, .. } = house(settings, |_| object().after(1));
        join_all((0..5).map(|_| write(&lanes.objects))).await;
        assert_eq!(server.times(), [0, 0, 0, 1, 1]);
        join_all((0..=events::AT_ONCE).map(|_| write(&lanes.events))).await;
        assert_eq!(server.times()[5..], [[2; events::AT_ONCE].as_slice(), &[3]].concat());
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_counts_from_the_sending() {
        let settings = LaneSettings {
            deadline: Duration::from_secs(6),
            max_writes: 1,
            ..LaneSettings::default()
        };
        let House { lanes, .. } = house(settings, |_| object().after(5));
        let both = tokio::join!(write(&lanes.objects), write(&lanes.objects));
        assert!(both.0.is_ok() && both.1.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_about_the_lease_alone_are_sent_again_when_nobody_answers() {
        let settings =
            LaneSettings { lease_patience: Duration::from_secs(2), ..LaneSettings::default() };
        let dead_at_first = |number| object().after(if number == 0 { 100 } else { 0 });
        let House { server, lanes, .. } = house(settings, dead_at_first);
        write(&lanes.leases).await.unwrap();
        assert_eq!(server.times(), [0, 2]);
        let House { server, lanes, .. } = house(settings, dead_at_first);
        assert!(write(&lanes.objects).await.unwrap_err().is_unclear());
        assert_eq!(server.times(), [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn every_way_in_obeys_the_rules() {
        let House { server, gate, metrics, lanes } = house(LaneSettings::default(), |_| object());
        gate.close();
        let api: kube::Api<Volume> = kube::Api::all(lanes.objects.kube());
        api.get("pv").await.unwrap();
        assert!(api.delete("pv", &kube::api::DeleteParams::default()).await.is_err());
        read(&lanes.leases).await.unwrap();
        assert_eq!(server.seen().len(), 2);
        assert!(
            server
                .seen()
                .iter()
                .all(|seen| seen.header("user-agent").starts_with("csi-provisioner/"))
        );
        let text = metrics.text();
        assert!(
            text.contains("{code=\"200\",resource=\"persistentvolumes\",verb=\"get\"} 2"),
            "{text}"
        );
    }
}
