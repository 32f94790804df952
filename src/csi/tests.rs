mod healing;
mod start;

use std::{sync::Arc, time::Duration};

use h2::Reason;
use prost::Message as _;
use tokio::time::{Instant, sleep, timeout};

use super::{
    fake::{
        CONTROLLER, CREATE, DELETE, Fake, INFO, NODE, PLUGIN, PROBE, Play, controller, framed,
        info, node, plugin, status,
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

fn gate() -> Gate {
    Gate::open(paused_clock())
}

fn settings(fake: &Fake) -> DriverSettings {
    DriverSettings {
        socket: "/run/csi/socket".into(),
        timeout: Duration::from_secs(10),
        node_info_required: false,
        tasks: fake.tasks.clone(),
        migrates: Arc::new(|_| false),
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
    for (code, read) in (1..=16).map(|code| (code, code)).chain([(99, 2)]) {
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
                (ErrorOrigin::Driver, read),
                "{play:?}"
            );
            assert_eq!(error.message, "caf\u{e9} 100%");
            assert_eq!(error.is_final(), !not_final, "{play:?}");
        }
    }
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
        (Play::NoTrailers(framed(&volume().encode_to_vec())), Code::Unavailable, ""),
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
async fn a_status_with_odd_details_or_a_long_message_is_still_the_drivers() {
    let long: &'static str = "very long ".repeat(50_000).leak();
    let mut headers = status("3", long);
    headers.insert("grpc-status-details-bin", http::HeaderValue::from_static("!!"));
    for play in [Play::HeadersOnly(headers.clone()), Play::Raw(Vec::new(), headers)] {
        let error = error_of(play).await;
        assert_eq!(
            (error.origin, error.code(), &*error.message),
            (ErrorOrigin::Driver, Code::InvalidArgument, long)
        );
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
