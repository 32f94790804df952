mod healing;
mod start;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use h2::Reason;
use prost::Message as _;
use tokio::time::{Instant, sleep, timeout};

use super::{
    fake::{
        CAPACITY, CONTROLLER, CREATE, DELETE, Fake, INFO, NODE, PLUGIN, PROBE, Play, controller,
        framed, info, node, plugin, status,
    },
    proto::{
        CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse,
        GetCapacityRequest, ProbeResponse, Volume, controller_service_capability::rpc,
        plugin_capability::service,
    },
    status::ErrorOrigin,
    *,
};
use crate::{
    logging::testing::{logged, logged_by},
    metrics::Metrics,
    runtime::{Gate, testing::paused_clock},
};

/// A driver that took over from an in-tree plugin.
const MIGRATED: &str = "ebs.csi.aws.com";

fn gate() -> Gate {
    Gate::open(paused_clock())
}

fn settings(fake: &Fake) -> DriverSettings {
    DriverSettings {
        socket: "/run/csi/socket".into(),
        timeout: Duration::from_secs(10),
        node_info_required: false,
        tasks: fake.tasks.clone(),
        migrates: Arc::new(|driver| driver == MIGRATED),
    }
}

async fn connect_with(fake: &Fake, gate: Gate, metrics: &Metrics) -> Result<Driver, ConnectError> {
    Driver::connect(settings(fake), fake.connector(), gate, metrics).await
}

/// Connects as with `--node-deployment`.
async fn connect_on_node(fake: &Fake) -> Result<Driver, ConnectError> {
    let settings = DriverSettings { node_info_required: true, ..settings(fake) };
    Driver::connect(settings, fake.connector(), gate(), &Metrics::new()).await
}

async fn connect(fake: &Fake) -> Result<Driver, ConnectError> {
    connect_with(fake, gate(), &Metrics::new()).await
}

fn volume() -> CreateVolumeResponse {
    let volume = Volume { volume_id: "v".into(), capacity_bytes: 1, ..Volume::default() };
    CreateVolumeResponse { volume: Some(volume) }
}

async fn create(driver: &Driver) -> Result<CreateVolumeResponse, CallError> {
    let request = CreateVolumeRequest { name: "pvc-1".into(), ..CreateVolumeRequest::default() };
    driver.create_volume(driver.connection(), request, false).await
}

/// The error of a `CreateVolume` that is answered with `play`.
async fn error_of(play: Play) -> CallError {
    let fake = Fake::new();
    fake.play(CREATE, play);
    create(&connect(&fake).await.unwrap()).await.unwrap_err()
}

/// Runs `work` while the connection is watched; the watch must not end.
async fn watched<T>(driver: &Driver, work: impl Future<Output = T>) -> T {
    tokio::select! {
        ended = driver.clone().watch(Duration::MAX) => panic!("ended: {ended}"),
        result = work => result,
    }
}

// === Origin of errors ===

#[tokio::test(start_paused = true)]
async fn a_status_in_headers_or_trailers_is_the_drivers() {
    for code in 1..=16 {
        let not_final = [1, 4, 10, 14].contains(&code);
        for play in [
            Play::status(code, "caf%C3%A9 100%"),
            Play::trailing(code, "caf%C3%A9 100%"),
            Play::Raw(
                framed(&volume().encode_to_vec()),
                status(&code.to_string(), "caf%C3%A9 100%"),
            ),
        ] {
            let error = error_of(play.clone()).await;
            assert_eq!(
                (error.origin, error.code() as i32),
                (ErrorOrigin::Driver, code),
                "{play:?}"
            );
            assert_eq!(error.message, "caf\u{e9} 100%");
            assert_eq!(error.is_final(), !not_final, "{play:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_status_is_still_the_drivers() {
    let error = error_of(Play::status(99, "odd")).await;
    assert_eq!(
        (error.origin, error.code(), error.is_final()),
        (ErrorOrigin::Driver, Code::Unknown, true)
    );
}

#[tokio::test(start_paused = true)]
async fn local_errors_are_never_final() {
    let oversize = framed(&vec![0; 5 << 20]);
    // A volume of a million empty topologies.
    let elements = framed(&[&[0x0a, 0x80, 0x89, 0x7a][..], &[0x2a, 0].repeat(1_000_000)].concat());
    let garbage = framed(&[0xff; 8]);
    for (play, code, text) in [
        (Play::Reset(Reason::INTERNAL_ERROR), Code::Unavailable, "error reading from server"),
        (Play::Reset(Reason::REFUSED_STREAM), Code::Unavailable, "error reading from server"),
        (Play::Reset(Reason::CANCEL), Code::Unavailable, ""),
        (Play::Reset(Reason::NO_ERROR), Code::Unavailable, ""),
        (Play::ResetMidway(Reason::INTERNAL_ERROR), Code::Unavailable, "error reading from server"),
        (Play::ResetMidway(Reason::CANCEL), Code::Unavailable, "error reading from server"),
        (Play::ResetMidway(Reason::NO_ERROR), Code::Unavailable, ""),
        (Play::Hangup, Code::Unavailable, "error reading from server"),
        (Play::HangupMidway, Code::Unavailable, "error reading from server"),
        (Play::Never, Code::DeadlineExceeded, "context deadline exceeded"),
        (
            Play::Late(Duration::from_secs(11), volume().encode_to_vec()),
            Code::DeadlineExceeded,
            "context deadline exceeded",
        ),
        (Play::NoTrailers(Vec::new()), Code::Unavailable, "without sending trailers"),
        (
            Play::Raw(oversize, status("0", "")),
            Code::ResourceExhausted,
            "grpc: received message larger than max (5242880 vs. 4194304)",
        ),
        (Play::Raw(elements, status("0", "")), Code::ResourceExhausted, "too many elements"),
        (Play::Raw(garbage, status("0", "")), Code::Internal, ""),
        (Play::Raw(vec![7, 0, 0, 0, 0], status("0", "")), Code::Internal, ""),
        (Play::Raw(Vec::new(), status("0", "")), Code::Internal, ""),
        (Play::status(0, ""), Code::Internal, ""),
        (Play::HeadersOnly(status("many", "")), Code::Unknown, "malformed grpc-status: \"many\""),
        (Play::Http(503), Code::Unavailable, ""),
        (Play::Http(403), Code::PermissionDenied, ""),
        (Play::Http(404), Code::Unimplemented, ""),
    ] {
        let error = error_of(play.clone()).await;
        let shown = format!("{:.60}: {error}", format!("{play:?}"));
        assert_eq!(
            (error.origin, error.code(), error.is_final()),
            (ErrorOrigin::Local, code, false),
            "{shown}"
        );
        assert!(error.message.contains(text), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_whole_answer_without_its_trailers_is_no_answer() {
    let error = error_of(Play::NoTrailers(framed(&volume().encode_to_vec()))).await;
    assert_eq!((error.origin, error.code()), (ErrorOrigin::Local, Code::Unavailable));
}

#[tokio::test(start_paused = true)]
async fn details_that_are_no_base64_do_no_harm() {
    let mut headers = status("3", "bad");
    headers.insert("grpc-status-details-bin", http::HeaderValue::from_static("!!"));
    for play in [Play::HeadersOnly(headers.clone()), Play::Raw(Vec::new(), headers)] {
        let error = error_of(play).await;
        assert_eq!(
            (error.origin, error.code(), &*error.message),
            (ErrorOrigin::Driver, Code::InvalidArgument, "bad")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_with_a_long_message_is_still_the_drivers() {
    let text: &'static str = "very long ".repeat(50_000).leak();
    for play in [Play::status(3, text), Play::trailing(3, text)] {
        let error = error_of(play).await;
        assert_eq!((error.origin, error.code()), (ErrorOrigin::Driver, Code::InvalidArgument));
        assert_eq!(error.message, text);
    }
}

#[tokio::test(start_paused = true)]
async fn headers_that_are_too_large_end_the_call_at_once() {
    for size in [2 << 20, 16 << 20] {
        let text: &'static str = "x".repeat(size).leak();
        for play in [Play::status(13, text), Play::trailing(13, text)] {
            let error = error_of(play).await;
            let shown = format!("{size}: {error}");
            assert_eq!((error.origin, error.is_final()), (ErrorOrigin::Local, false), "{shown}");
            assert!(error.message.contains("headers are larger than 1048576 bytes"), "{shown}");
        }
    }
}

#[test]
fn errors_print_as_grpc_go_prints_them() {
    let printed = CallError::driver(Code::Cancelled, "x").to_string();
    assert_eq!(printed, "rpc error: code = Canceled desc = x");
    let printed = CallError::deadline().to_string();
    assert_eq!(printed, "rpc error: code = DeadlineExceeded desc = context deadline exceeded");
}

#[test]
fn an_answer_without_a_volume_or_an_id_is_no_volume() {
    assert_eq!(created_volume(volume()).unwrap().volume_id, "v");
    for response in
        [CreateVolumeResponse::default(), CreateVolumeResponse { volume: Some(Volume::default()) }]
    {
        assert!(!created_volume(response).unwrap_err().is_final());
    }
}

// === Calls ===

#[tokio::test(start_paused = true)]
async fn a_call_carries_deadline_and_authority_as_grpc_gos_do() {
    let fake = Fake::new();
    fake.play(DELETE, Play::answer(&DeleteVolumeResponse {}));
    let driver = connect(&fake).await.unwrap();
    let request = DeleteVolumeRequest { volume_id: "v".into(), ..DeleteVolumeRequest::default() };
    driver.delete_volume(request.clone(), false, None).await.unwrap();
    let call = fake.received().pop().unwrap();
    assert_eq!((call.path.as_str(), call.authority.as_str()), (DELETE, "localhost"));
    assert_eq!(call.headers["grpc-timeout"], "10000000u");
    assert_eq!(call.headers["content-type"], "application/grpc");
    assert_eq!(call.headers["te"], "trailers");
    assert_eq!(call.message, framed(&request.encode_to_vec()));
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_deadline() {
    let fake = Fake::new();
    fake.play(CREATE, Play::Never);
    let driver = connect(&fake).await.unwrap();
    let start = Instant::now();
    create(&driver).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_secs(10));
    // The connection stays up.
    fake.play(CREATE, Play::answer(&volume()));
    create(&driver).await.unwrap();
    assert_eq!(fake.dials(), 1);
}

#[tokio::test(start_paused = true)]
async fn every_call_is_counted_with_its_code() {
    let fake = Fake::new();
    let metrics = Metrics::new();
    fake.play(CREATE, Play::Never);
    fake.play(CAPACITY, Play::status(3, ""));
    let driver = connect_with(&fake, gate(), &metrics).await.unwrap();
    create(&driver).await.unwrap_err();
    driver.get_capacity(GetCapacityRequest::default()).await.unwrap_err();
    let text = metrics.text();
    for (driver, code, method) in [
        ("unknown-driver", "OK", PROBE),
        ("unknown-driver", "OK", INFO),
        ("disk.example.com", "OK", PLUGIN),
        ("disk.example.com", "OK", CONTROLLER),
        ("disk.example.com", "DeadlineExceeded", CREATE),
        ("disk.example.com", "InvalidArgument", CAPACITY),
    ] {
        let line = format!(
            "csi_sidecar_operations_seconds_count{{driver_name=\"{driver}\",grpc_status_code=\"{code}\",\
             method_name=\"{method}\"}} 1"
        );
        assert!(text.contains(&line), "missing {line} in\n{text}");
    }
}

/// external-provisioner opens a second connection once it knows that the driver is migrated, so
/// only later calls have the label.
#[tokio::test(start_paused = true)]
async fn calls_to_a_migrated_driver_have_the_label_migrated() {
    let fake = Fake::new();
    let metrics = Metrics::new();
    fake.play(INFO, info(MIGRATED));
    for _ in 0..2 {
        fake.play(CREATE, Play::answer(&volume()));
    }
    let driver = connect_with(&fake, gate(), &metrics).await.unwrap();
    let request = CreateVolumeRequest::default();
    driver.create_volume(driver.connection(), request.clone(), true).await.unwrap();
    driver.create_volume(driver.connection(), request, false).await.unwrap();
    let text = metrics.text();
    let count = |method: &str, migrated: &str| {
        let labels = format!(
            "driver_name=\"{MIGRATED}\",grpc_status_code=\"OK\",method_name=\"{method}\",migrated=\"{migrated}\""
        );
        text.contains(&format!("csi_sidecar_operations_seconds_count{{{labels}}} 1"))
    };
    assert!(count(CREATE, "true") && count(CREATE, "false"));
    assert!(count(PROBE, "false") && count(PLUGIN, "false") && count(CONTROLLER, "false"));
    let series = || text.lines().filter(|line| line.starts_with("csi_sidecar"));
    assert!(!series().any(|line| line.contains(INFO)), "over before the driver was known");
}

fn sendable<T: Send>(what: T) -> T {
    what
}

#[tokio::test(start_paused = true)]
async fn calls_and_watch_can_go_into_tasks() {
    let fake = Fake::new();
    fake.play(CREATE, Play::answer(&volume()));
    let driver = sendable(connect(&fake)).await.unwrap();
    drop(sendable(driver.clone().watch(Duration::MAX)));
    sendable(create(&driver)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn calls_are_logged_without_their_secrets() {
    // By whatever crate.
    let (log, guard) = logged_by(tracing::Level::TRACE, |_| true);
    let fake = Fake::new();
    fake.play(CREATE, Play::answer(&volume()));
    let driver = connect(&fake).await.unwrap();
    let secrets = [("userKey".to_owned(), "hush-hush".to_owned())].into();
    let request =
        CreateVolumeRequest { name: "pvc-1".into(), secrets, ..CreateVolumeRequest::default() };
    driver.create_volume(driver.connection(), request, false).await.unwrap();
    drop(guard);
    let text = log.text();
    let request = r#"request={"name":"pvc-1","secrets":"***stripped***"}"#;
    for line in [
        format!(r#"GRPC call method="/csi.v1.Controller/CreateVolume" {request}"#),
        r#"GRPC response method="/csi.v1.Controller/CreateVolume" response={"volume":{"#.to_owned(),
    ] {
        assert!(text.contains(&line), "{text}");
    }
    assert!(!text.contains("hush-hush"));
}

// === Gate ===

#[tokio::test(start_paused = true)]
async fn nothing_that_changes_or_costs_much_is_sent_while_the_gate_is_shut() {
    let fake = Fake::new();
    let gate = gate();
    let driver = connect_with(&fake, gate.clone(), &Metrics::new()).await.unwrap();
    let before = fake.paths().len();
    gate.close();
    for error in [
        create(&driver).await.unwrap_err(),
        driver.delete_volume(DeleteVolumeRequest::default(), false, None).await.unwrap_err(),
        driver.get_capacity(GetCapacityRequest::default()).await.unwrap_err(),
    ] {
        assert_eq!(
            (error.origin, error.code(), error.is_final()),
            (ErrorOrigin::Unsent, Code::Unavailable, false)
        );
    }
    assert_eq!(fake.paths().len(), before);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_cut_when_the_gate_shuts() {
    let fake = Fake::new();
    let gate = gate();
    let metrics = Metrics::new();
    fake.play(CREATE, Play::Late(Duration::from_secs(5), volume().encode_to_vec()));
    let driver = connect_with(&fake, gate.clone(), &metrics).await.unwrap();
    let start = Instant::now();
    let (error, ()) = tokio::join!(create(&driver), async {
        sleep(Duration::from_secs(2)).await;
        gate.close();
    });
    assert_eq!(start.elapsed(), Duration::from_secs(2));
    assert_eq!(error.unwrap_err().origin, ErrorOrigin::Local);
    let text = metrics.text();
    assert!(text.contains(
        "grpc_status_code=\"Unavailable\",method_name=\"/csi.v1.Controller/CreateVolume\""
    ));
}
