//! Faults and the record of requests.

use kube::api::PostParams;

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
