//! The start: waiting for the driver, reading its identity, and error messages.

use super::*;

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
async fn no_socket_for_30_seconds_is_logged_twice_and_ends_the_start() {
    let (log, _guard) = logged();
    let fake = Fake::new();
    fake.refuse(true);
    let start = Instant::now();
    let error = connect(&fake).await.err().unwrap();
    assert_eq!(log.text().matches("Still connecting address=/run/csi/socket").count(), 2);
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    assert_eq!((error.to_string().as_str(), error.exit_code()), ("context deadline exceeded", 1));
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_not_ready_is_asked_once_a_second_for_as_long_as_it_takes_and_that_is_logged()
 {
    for play in [
        Play::answer(&ProbeResponse { ready: Some(false) }),
        Play::status(4, "slow"),
        Play::status(14, "starting"),
        Play::Hangup,
    ] {
        let (log, _guard) = logged();
        let fake = Fake::new();
        fake.play(PROBE, play.clone());
        let ready = async {
            sleep(Duration::from_millis(99_500)).await;
            let probes = fake.paths().len();
            assert_eq!(probes, 100, "{play:?}");
            assert_eq!(log.text().matches("CSI driver is not ready").count(), 10, "{play:?}");
            fake.play(PROBE, Play::answer(&ProbeResponse { ready: Some(true) }));
        };
        let (driver, ()) = tokio::join!(connect(&fake), ready);
        driver.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_has_external_provisioners_texts_and_exit_codes() {
    let boom = "rpc error: code = Internal desc = boom";
    let capabilities = format!("Error getting CSI driver capabilities: {boom}");
    let nameless = "Error getting CSI driver name: driver name is empty".to_owned();
    let refused = || Play::status(13, "boom");
    for (path, play, text, code) in [
        (PROBE, refused(), format!("CSI driver probe failed: {boom}"), 1),
        (INFO, refused(), format!("Error getting CSI driver name: {boom}"), 255),
        (INFO, info(""), nameless, 255),
        (PLUGIN, refused(), capabilities.clone(), 255),
        (CONTROLLER, refused(), capabilities, 255),
    ] {
        let fake = Fake::new();
        fake.play(path, play);
        let error = connect(&fake).await.err().unwrap();
        assert_eq!((error.to_string(), error.exit_code()), (text, code));
    }
}
