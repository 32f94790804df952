//! The start: waiting for the driver, reading its identity, and error messages.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_driver_is_found_with_name_and_capabilities() {
    let fake = Fake::new();
    let driver = connect(&fake).await.unwrap();
    assert_eq!(driver.name(), "disk.example.com");
    assert_eq!(driver.capabilities().plugin, BTreeSet::from([service::Type::ControllerService]));
    assert_eq!(driver.capabilities().controller, BTreeSet::from([rpc::Type::CreateDeleteVolume]));
    assert_eq!(fake.paths(), [PROBE, INFO, PLUGIN, CONTROLLER]);
}

#[tokio::test(start_paused = true)]
async fn a_driver_without_controller_service_is_not_asked_about_it() {
    let fake = Fake::new();
    fake.play(PLUGIN, plugin(&[service::Type::VolumeAccessibilityConstraints]));
    let driver = connect(&fake).await.unwrap();
    assert!(driver.capabilities().controller.is_empty());
    assert!(!fake.paths().contains(&CONTROLLER.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn node_info_is_read_only_with_node_deployment() {
    for (error_of, expected) in [
        (node(Some(&[("zone", "z1")])), Some([("zone".to_owned(), "z1".to_owned())].into())),
        (node(Some(&[])), Some([].into())),
        (node(None), None),
    ] {
        let fake = Fake::new();
        fake.play(NODE, error_of);
        let driver = connect_on_node(&fake).await.unwrap();
        assert_eq!(driver.node_topology(), expected.as_ref());
        assert_eq!(fake.paths(), [PROBE, INFO, PLUGIN, CONTROLLER, NODE]);
    }
    let fake = Fake::new();
    assert_eq!(connect(&fake).await.unwrap().node_topology(), None);
    assert!(!fake.paths().contains(&NODE.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn missing_node_info_fails_the_start() {
    for (play, text) in [
        (Play::status(13, "no luck"), "rpc error: code = Internal desc = no luck"),
        (
            Play::status(12, "unknown service csi.v1.Node"),
            "rpc error: code = Unimplemented desc = unknown service csi.v1.Node",
        ),
    ] {
        let fake = Fake::new();
        fake.play(NODE, play);
        let error = connect_on_node(&fake).await.err().unwrap();
        assert_eq!(error.to_string(), format!("Failed to get node info from CSI driver: {text}"));
        assert_eq!(error.exit_code(), 255);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_socket_is_picked_up_within_a_second() {
    let fake = Fake::new();
    fake.refuse(true);
    let appear = async {
        sleep(Duration::from_secs(25)).await;
        fake.refuse(false);
        Instant::now()
    };
    let (driver, appeared) = tokio::join!(connect(&fake), appear);
    driver.unwrap();
    assert!(appeared.elapsed() <= Duration::from_secs(1), "{:?}", appeared.elapsed());
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_socket_is_logged_every_10_seconds() {
    let (log, guard) = logged();
    let fake = Fake::new();
    fake.refuse(true);
    connect(&fake).await.err().unwrap();
    drop(guard);
    assert_eq!(log.text().matches("Still connecting address=/run/csi/socket").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_driver_that_is_not_ready_is_logged_every_10_seconds() {
    let (log, guard) = logged();
    let fake = Fake::new();
    fake.play(PROBE, Play::answer(&ProbeResponse { ready: Some(false) }));
    assert!(timeout(Duration::from_secs(99), connect(&fake)).await.is_err());
    drop(guard);
    assert!(fake.paths().len() >= 99);
    assert_eq!(log.text().matches("CSI driver is not ready").count(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_stays_broken_is_logged_every_10_seconds() {
    let (log, guard) = logged();
    let fake = Fake::new();
    let driver = connect(&fake).await.unwrap();
    fake.play(INFO, Play::status(13, "broken"));
    watched(&driver, async {
        fake.hang_up();
        sleep(Duration::from_secs(99)).await;
    })
    .await;
    drop(guard);
    let logged = log.text().matches("The CSI driver cannot be used yet").count();
    assert!((9..=10).contains(&logged), "{logged}");
}

#[tokio::test(start_paused = true)]
async fn no_socket_for_30_seconds_ends_the_start() {
    let fake = Fake::new();
    fake.refuse(true);
    let start = Instant::now();
    let error = connect(&fake).await.err().unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    assert_eq!((error.to_string().as_str(), error.exit_code()), ("context deadline exceeded", 1));
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_not_ready_is_asked_once_a_second_for_as_long_as_it_takes() {
    for play in [
        Play::answer(&ProbeResponse { ready: Some(false) }),
        Play::status(4, "slow"),
        Play::status(14, "starting"),
        Play::Hangup,
    ] {
        let fake = Fake::new();
        fake.play(PROBE, play.clone());
        let ready = async {
            sleep(Duration::from_millis(99_500)).await;
            let probes = fake.paths().len();
            assert_eq!(probes, 100, "{play:?}");
            fake.play(PROBE, Play::answer(&ProbeResponse { ready: Some(true) }));
        };
        let (driver, ()) = tokio::join!(connect(&fake), ready);
        driver.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_has_external_provisioners_texts_and_exit_codes() {
    let refused = || Play::status(13, "boom");
    for (path, play, text, code) in [
        (PROBE, refused(), "CSI driver probe failed: rpc error: code = Internal desc = boom", 1),
        (
            INFO,
            refused(),
            "Error getting CSI driver name: rpc error: code = Internal desc = boom",
            255,
        ),
        (INFO, info(""), "Error getting CSI driver name: driver name is empty", 255),
        (
            PLUGIN,
            refused(),
            "Error getting CSI driver capabilities: rpc error: code = Internal desc = boom",
            255,
        ),
        (
            CONTROLLER,
            refused(),
            "Error getting CSI driver capabilities: rpc error: code = Internal desc = boom",
            255,
        ),
    ] {
        let fake = Fake::new();
        fake.play(path, play);
        let error = connect(&fake).await.err().unwrap();
        assert_eq!((error.to_string().as_str(), error.exit_code()), (text, code));
    }
}
