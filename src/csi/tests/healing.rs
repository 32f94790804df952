//! Reconnecting after a lost connection; another driver ends the watch.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_call_under_way_survives_a_goaway_and_not_a_hang_up() {
    let fake = Fake::new();
    let driver = connect(&fake).await.unwrap();
    fake.play(CREATE, Play::Late(Duration::from_secs(3), volume().encode_to_vec()));
    for (lose, survives) in [(Fake::go_away as fn(&Fake), true), (Fake::hang_up, false)] {
        let (answer, ()) = watched(&driver, async {
            tokio::join!(create(&driver), async {
                sleep(Duration::from_secs(1)).await;
                lose(&fake);
            })
        })
        .await;
        match answer {
            Ok(_) => assert!(survives),
            Err(error) => {
                assert!(!survives, "{error}");
                assert_eq!((error.origin, error.code()), (ErrorOrigin::Local, Code::Unavailable));
            }
        }
        watched(&driver, sleep(Duration::from_secs(5))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn calls_fail_at_once_while_the_driver_is_away_and_work_once_it_is_back_and_ready() {
    let fake = Fake::new();
    let driver = connect(&fake).await.unwrap();
    fake.play(CREATE, Play::answer(&volume()));
    watched(&driver, async {
        fake.refuse(true);
        fake.hang_up();
        sleep(Duration::from_secs(600)).await;
        let start = Instant::now();
        let error = create(&driver).await.unwrap_err();
        assert_eq!((error.origin, error.code()), (ErrorOrigin::Unsent, Code::Unavailable));
        assert_eq!(start.elapsed(), Duration::ZERO);
        // Connected again, but not ready: calls still fail.
        fake.play(PROBE, Play::answer(&ProbeResponse { ready: Some(false) }));
        fake.refuse(false);
        sleep(Duration::from_secs(60)).await;
        create(&driver).await.unwrap_err();
        assert!(!fake.paths().contains(&CREATE.to_owned()));
        fake.play(PROBE, Play::answer(&ProbeResponse::default()));
        sleep(Duration::from_secs(2)).await;
        create(&driver).await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_comes_back_broken_is_asked_again() {
    for path in [PROBE, INFO, PLUGIN, CONTROLLER] {
        let fake = Fake::new();
        let driver = connect(&fake).await.unwrap();
        let sound = [
            (PROBE, Play::answer(&ProbeResponse::default())),
            (INFO, info("disk.example.com")),
            (PLUGIN, plugin(&[service::Type::ControllerService])),
            (CONTROLLER, controller(&[rpc::Type::CreateDeleteVolume])),
        ];
        watched(&driver, async {
            fake.play(path, Play::status(13, "boom"));
            fake.hang_up();
            sleep(Duration::from_secs(20)).await;
            create(&driver).await.unwrap_err();
            for (path, play) in sound {
                fake.play(path, play);
            }
            fake.play(CREATE, Play::answer(&volume()));
            sleep(Duration::from_secs(3)).await;
            create(&driver).await.unwrap();
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_comes_back_on_another_node_ends_the_watch() {
    let fake = Fake::new();
    fake.play(NODE, node(Some(&[("zone", "z1")])));
    let driver = connect_on_node(&fake).await.unwrap();
    watched(&driver, async {
        fake.hang_up();
        sleep(Duration::from_secs(5)).await;
    })
    .await;
    fake.play(NODE, node(Some(&[("zone", "z2")])));
    fake.hang_up();
    let ended = timeout(Duration::from_secs(5), driver.clone().watch(Duration::MAX)).await.unwrap();
    let text = "after a lost connection CSI driver disk.example.com has another node topology: ";
    assert!(ended.to_string().starts_with(text), "{ended}");
}

#[tokio::test(start_paused = true)]
async fn late_answers_of_many_calls_cost_no_connection() {
    let fake = Fake::new();
    let driver = connect(&fake).await.unwrap();
    // As a driver answers that obeys the deadline: the answers come when nobody waits for them any more.
    fake.play(CREATE, Play::Late(Duration::from_secs(10), volume().encode_to_vec()));
    watched(&driver, async {
        for _ in 0..8 {
            let calls = futures::future::join_all((0..200).map(|_| create(&driver))).await;
            assert!(calls.iter().all(|call| {
                call.as_ref().is_err_and(|error| error.code() == Code::DeadlineExceeded)
            }));
            sleep(Duration::from_secs(1)).await;
        }
    })
    .await;
    assert_eq!(fake.dials(), 1);
}
