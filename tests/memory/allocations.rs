//! How often the program allocates memory to read a claim, to log a line, and to emit an event: thousands of
//! each come in a burst. Counted by the allocator, so that neither the machine nor the time of day matters.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use csi_provisioner::{
    controller::events::Events,
    flags::Logging,
    kube::{Connections, LaneSettings, Lanes, events::Recorder, layers::Request, objects::Claim},
    logging,
    metrics::Metrics,
    runtime::{Clock, Gate, Generator, Tasks, TokioSpawner},
};
use http_body_util::Full;
use testkit::load::objects::Family;
use tower::service_fn;

use crate::asked;

/// So many of each are written.
const COUNT: usize = 4;

/// How often the program may ask for memory to log a line, whatever it says.
const A_LINE: usize = 11;
/// And to emit an event, its line included.
const AN_EVENT: usize = 22;
/// And until the event is on its way, with all that a request needs.
const AN_EVENT_SENT: usize = 56;
/// And to read a waiting claim: its texts, its annotations, and lists of finalizers and access modes.
const A_CLAIM: usize = 24;

/// How often each `write` but the first allocates memory: what is needed only once exists by then.
fn each(write: impl Fn(usize)) -> [usize; COUNT] {
    write(0);
    std::array::from_fn(|number| {
        let before = asked();
        write(number + 1);
        asked() - before
    })
}

struct Fixed;

impl Clock for Fixed {
    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::from_second(1_767_225_600).unwrap()
    }

    fn boot(&self) -> Duration {
        Duration::from_secs(1000)
    }
}

/// A server that takes every event, and notes how often memory had been asked for when one came.
fn server(came: &Arc<AtomicUsize>) -> Connections {
    let came = Arc::clone(came);
    Connections::to(service_fn(move |_: Request| {
        came.store(asked(), Relaxed);
        let answer = http::Response::new(Full::new(Bytes::from_static(b"{\"metadata\":{}}")));
        async move { Ok::<_, Infallible>(answer) }
    }))
}

/// The emitter of claims' events, which sends them to `server`.
fn claim_events(server: Connections) -> Events {
    let (tasks, _) = Tasks::new(Arc::new(TokioSpawner));
    let (metrics, random) = (Metrics::new(), Arc::new(Generator::from_seed(1)));
    let gate = Gate::open(Arc::new(Fixed));
    let lanes = Lanes::new(server, LaneSettings::default(), gate, random.clone(), &metrics);
    let recorder = Recorder::start(lanes.events, &tasks, Arc::new(Fixed), random, &metrics);
    Events::new(recorder.for_component("driver_host"))
}

fn claim(number: usize) -> Claim {
    let claim = serde_json::json!({"metadata": {
        "namespace": "shop", "name": format!("data-of-a-database-{number}"),
        "uid": "6f0c3d1e-8f6b-4f0e-9d9c-2f0c3d1e8f6b", "resourceVersion": "1234567",
    }});
    serde_json::from_value(claim).unwrap()
}

fn log_line(number: usize) {
    tracing::info!(
        target: "csi_provisioner::test",
        number,
        volume = "pvc-6f0c3d1e-8f6b-4f0e-9d9c-2f0c3d1e8f6b",
        error = %"what the driver said",
        why = ?Some("\"quoted\""),
        "a line of the usual {}",
        "length"
    );
}

/// Waiting claims of a chart, in JSON.
fn waiting_claims() -> Vec<String> {
    let family = Family {
        driver: "rbd.csi.ceph.com".to_owned(),
        class: "fast".to_owned(),
        namespace: "shop".to_owned(),
        prefix: String::new(),
        labels: BTreeMap::new(),
    };
    (0..=COUNT).map(|number| family.waiting_claim(number).to_string()).collect()
}

pub(crate) async fn a_claim_a_line_and_an_event_ask_for_little_memory() {
    let claims = waiting_claims();
    let read = each(|number| drop(serde_json::from_str::<Claim>(&claims[number]).unwrap()));
    assert!(read.iter().all(|asked| *asked <= A_CLAIM), "to read a claim: {read:?}");

    let settings = Logging { verbosity: 0, vmodule: vec![], format: "text".into() };
    logging::init(&settings, Arc::new(Fixed)).unwrap();
    let alone = each(log_line);
    assert!(alone.iter().all(|asked| *asked <= A_LINE), "alone: {alone:?}");
    let span = tracing::info_span!(
        target: "csi_provisioner::test",
        "claim",
        claim = %"shop/data-of-a-database",
        uid = "6f0c3d1e-8f6b-4f0e-9d9c-2f0c3d1e8f6b",
        attempt = 2
    );
    let in_span = span.in_scope(|| each(log_line));
    assert!(in_span.iter().all(|asked| *asked <= A_LINE), "in a span: {in_span:?}");

    let came = Arc::new(AtomicUsize::new(0));
    let events = claim_events(server(&came));
    let claims: Vec<Claim> = (0..=COUNT).map(claim).collect();
    for (number, claim) in claims.iter().enumerate() {
        let before = asked();
        events.provisioning(claim);
        let recorded = asked() - before;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let sent = came.load(Relaxed) - before;
        // The first one finds nothing ready.
        let within = recorded <= AN_EVENT && (recorded..=AN_EVENT_SENT).contains(&sent);
        assert!(
            number == 0 || within,
            "event {number}: {recorded} to emit it, {sent} until it was sent"
        );
    }
}
