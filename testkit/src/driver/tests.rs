//! The scriptable driver as its callers see it, in simulated time.

use std::{sync::Arc, time::Duration};

use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::time::Instant;
use tonic::transport::{Endpoint, Uri};

use super::{
    Host, Script, Scripted,
    proto::{CreateVolumeRequest, controller_client::ControllerClient},
};

#[tokio::test(start_paused = true)]
async fn a_call_whose_caller_went_away_is_dropped_where_it_stands() {
    let script = json!({"create_volume": [{"delay_ms": 60_000}]});
    let host = Arc::new(Host::new(Scripted::new(serde_json::from_value(script).unwrap())));
    let dialled = Arc::clone(&host);
    let dial = move |_: Uri| std::future::ready(dialled.connect().map(TokioIo::new));
    let channel = Endpoint::from_static("http://driver");
    let channel = channel.connect_with_connector_lazy(tower::service_fn(dial));
    let request = |name: &str| CreateVolumeRequest { name: name.to_owned(), ..<_>::default() };
    let began = Instant::now();
    let mut deadline = tonic::Request::new(request("slow"));
    deadline.set_timeout(Duration::from_secs(3));
    let mut first = ControllerClient::new(channel.clone());
    let mut second = ControllerClient::new(channel);
    let (timed, dropped) = tokio::join!(
        first.create_volume(deadline),
        tokio::time::timeout(Duration::from_secs(5), second.create_volume(request("gone"))),
    );
    assert!(timed.is_err() && dropped.is_err());
    tokio::time::sleep(Duration::from_millis(1)).await;
    let flight = host.backend().flight("CreateVolume").unwrap();
    assert_eq!((flight.now, flight.peak), (0, 2));
    let left = flight.first_time_left.unwrap();
    assert!(left <= Duration::from_secs(3) && left > Duration::from_millis(2900), "{left:?}");
    assert!(began.elapsed() < Duration::from_secs(6), "the driver's delay was not waited for");
}

#[test]
fn a_misspelt_script_is_refused() {
    for wrong in [
        json!({"create_volumes": []}),
        json!({"create_volume": [{"tmies": 1}]}),
        json!({"create_volume": [{"error": {"code": "Internal"}}]}),
        json!({"create_volume": [{"match": {"name": "("}}]}),
    ] {
        assert!(serde_json::from_value::<Script>(wrong.clone()).is_err(), "{wrong}");
    }
}
