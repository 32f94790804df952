//! Faults and the record of requests.

use std::time::Duration;

use kube::api::PostParams;
use tokio::time::Instant;

use super::{refusal, server, typed, volume, volumes};
use crate::apiserver::{
    faults::{Effect, Rule},
    status::Status,
};

#[tokio::test(start_paused = true)]
async fn a_cut_before_the_commit_leaves_nothing_and_one_after_leaves_the_write() {
    let server = server();
    let create = async |name: &str| {
        volumes(&server).create(&PostParams::default(), &typed(volume(name))).await
    };
    for (effect, left) in [(Effect::CutBefore, 0), (Effect::CutAfter, 1)] {
        server.faults().add(Rule::on("create", "persistentvolumes", effect).times(1));
        let error = create("v").await.unwrap_err();
        assert!(!matches!(error, kube::Error::Api(_)), "{error}");
        assert_eq!(server.count("PersistentVolume"), left);
    }
    assert_eq!(refusal(create("v").await.unwrap_err()).0, 409);
    let codes: Vec<u16> =
        server.requests().matching("create", "persistentvolumes").iter().map(|r| r.code).collect();
    assert_eq!(codes, [0, 0, 409]);
}

#[tokio::test(start_paused = true)]
async fn answers_can_be_made_up_before_or_after_the_commit() {
    let server = server();
    let create = async |name: &str| {
        volumes(&server).create(&PostParams::default(), &typed(volume(name))).await
    };
    server.faults().add(
        Rule::on("create", "persistentvolumes", Effect::AnswerAfter(Status::internal("etcd")))
            .times(1),
    );
    assert_eq!(refusal(create("v").await.unwrap_err()).0, 500);
    assert_eq!(server.count("PersistentVolume"), 1);
    server.faults().add(
        Rule::on("create", "persistentvolumes", Effect::Answer(Status::too_many_requests(7)))
            .times(1),
    );
    let request = http::Request::post("/api/v1/persistentvolumes")
        .body(volume("w").to_string().into())
        .unwrap();
    let response = server.handle(&crate::apiserver::User::default(), request).await;
    assert_eq!(
        (response.status().as_u16(), response.headers()["retry-after"].to_str().unwrap()),
        (429, "7")
    );
    assert_eq!(server.count("PersistentVolume"), 1);
}

/// The chunks of an answer's body up to its end or break, with the second at which each came.
async fn read_slowly(server: &crate::apiserver::ApiServer) -> (Vec<(u64, usize)>, bool) {
    use http_body_util::BodyExt as _;
    let request = http::Request::get("/api/v1/persistentvolumes/v").body(bytes::Bytes::new());
    let user = crate::apiserver::User::default();
    let (start, response) = (Instant::now(), server.handle(&user, request.unwrap()).await);
    let (mut body, mut chunks) = (response.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return (chunks, false) };
        chunks.push((start.elapsed().as_secs(), frame.into_data().unwrap().len()));
    }
    (chunks, true)
}

#[tokio::test(start_paused = true)]
async fn a_body_breaks_off_half_way_or_comes_byte_by_byte() {
    let server = server();
    server.create(&volume("v")).unwrap();
    let (whole, ended) = read_slowly(&server).await;
    let (&[(0, length)], true) = (whole.as_slice(), ended) else { panic!("{whole:?} {ended}") };

    server.faults().add(Rule::on("get", "persistentvolumes", Effect::Truncate).times(1));
    assert_eq!(read_slowly(&server).await, (vec![(0, length / 2)], false));

    let slow = Effect::Trickle(Duration::from_secs(1));
    server.faults().add(Rule::on("get", "persistentvolumes", slow).times(1));
    let (chunks, ended) = read_slowly(&server).await;
    let expected: Vec<_> = (1..=length).map(|second| (second as u64, 1)).collect();
    assert_eq!((chunks, ended), (expected, true));
}
