//! The scriptable driver as its callers see it, in simulated time.

use std::{sync::Arc, time::Duration};

use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint, Uri};

use super::{
    Code, Host, Script, Scripted,
    journal::as_json,
    proto::{
        self, CapacityRange, CreateVolumeRequest, ProbeRequest, Topology, VolumeCapability,
        controller_client::ControllerClient, identity_client::IdentityClient, volume_capability,
    },
};

fn script(value: Value) -> Script {
    serde_json::from_value(value).unwrap()
}

fn scripted(value: Value) -> Arc<Host<Scripted>> {
    Arc::new(Host::new(Scripted::new(script(value))))
}

/// A channel that dials anew whenever it has to.
fn channel(host: &Arc<Host<Scripted>>) -> Channel {
    let host = Arc::clone(host);
    let dial = move |_: Uri| std::future::ready(host.connect().map(TokioIo::new));
    Endpoint::from_static("http://driver").connect_with_connector_lazy(tower::service_fn(dial))
}

fn controller(host: &Arc<Host<Scripted>>) -> ControllerClient<Channel> {
    ControllerClient::new(channel(host))
}

fn request(name: &str) -> CreateVolumeRequest {
    CreateVolumeRequest { name: name.to_owned(), ..CreateVolumeRequest::default() }
}

async fn create(host: &Arc<Host<Scripted>>, name: &str) -> Result<String, Code> {
    let answer = controller(host).create_volume(request(name)).await;
    answer.map(|a| a.into_inner().volume.unwrap().volume_id).map_err(|status| status.code())
}

#[tokio::test(start_paused = true)]
async fn rules_serve_their_number_of_calls_per_volume_and_the_last_one_goes_on() {
    let host = scripted(json!({"create_volume": [
        {"times": 1, "error": {"code": "INTERNAL"}},
        {"times": 2, "error": {"code": "ABORTED", "message": "busy"}},
        {"times": 1, "volume": {"volume_id": "x"}},
    ]}));
    for name in ["a", "b"] {
        let mut answers = Vec::new();
        for _ in 0..5 {
            answers.push(create(&host, name).await);
        }
        let x = || Ok("x".to_owned());
        let expected = [Err(Code::Internal), Err(Code::Aborted), Err(Code::Aborted), x(), x()];
        assert_eq!(answers, expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_is_for_the_calls_it_matches_and_no_rule_means_success() {
    let host = scripted(json!({"create_volume": [
        {"match": {"name": "^pvc-[0-9]$"}, "error": {"code": "NOT_FOUND"}},
        {"match": {"parameters": {"pool": "full"}}, "error": {"code": "RESOURCE_EXHAUSTED"}},
    ]}));
    assert_eq!(create(&host, "pvc-1").await, Err(Code::NotFound));
    assert_eq!(create(&host, "pvc-10").await, Ok("vol-pvc-10".to_owned()));
    let parameters = [("pool".to_owned(), "full".to_owned()), ("k".to_owned(), "v".to_owned())];
    let full = CreateVolumeRequest { parameters: parameters.into(), ..request("other") };
    let refused = controller(&host).create_volume(full).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::ResourceExhausted, "scripted"));
}

#[tokio::test(start_paused = true)]
async fn new_rules_replace_only_what_they_name_and_count_from_the_start() {
    let host = scripted(json!({
        "name": "a.example.com",
        "create_volume": [{"times": 1, "error": {"code": "INTERNAL"}}, {}],
    }));
    assert_eq!(create(&host, "v").await, Err(Code::Internal));
    assert_eq!(create(&host, "v").await, Ok("vol-v".to_owned()));
    host.backend().amend(script(json!({"delete_volume": [{"error": {"code": "ABORTED"}}]})));
    assert_eq!(create(&host, "v").await, Err(Code::Internal));
    let info = IdentityClient::new(channel(&host))
        .get_plugin_info(proto::GetPluginInfoRequest {})
        .await
        .unwrap();
    assert_eq!(info.into_inner().name, "a.example.com");
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_caller_went_away_is_dropped_where_it_stands() {
    let host = scripted(json!({"create_volume": [{"delay_ms": 60_000}]}));
    let began = Instant::now();
    let mut deadline = tonic::Request::new(request("slow"));
    deadline.set_timeout(Duration::from_secs(3));
    let mut first = controller(&host);
    let mut second = controller(&host);
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

#[tokio::test(start_paused = true)]
async fn stopping_cuts_running_calls_at_once_and_starting_serves_again() {
    let host = scripted(json!({"create_volume": [{"delay_ms": 60_000, "times": 1}, {}]}));
    let began = Instant::now();
    let cut = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        host.stop();
    };
    let (answer, ()) = tokio::join!(create(&host, "v"), cut);
    assert!(answer.is_err());
    assert_eq!(began.elapsed().as_secs(), 1);
    assert_eq!(create(&host, "v").await, Err(Code::Unavailable));
    host.start();
    assert_eq!(create(&host, "v").await, Ok("vol-v".to_owned()));
    assert_eq!(host.journal().count("CreateVolume"), 2);
}

#[tokio::test]
async fn a_socket_is_served_taken_away_and_served_again() {
    let path = std::env::temp_dir().join(format!("testkit-driver-{}.sock", std::process::id()));
    let host = scripted(json!({}));
    let probe = async || {
        let to = path.clone();
        let dial = tower::service_fn(move |_: Uri| {
            let to = to.clone();
            async move { tokio::net::UnixStream::connect(to).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://driver").connect_with_connector(dial).await;
        IdentityClient::new(channel.map_err(|_| ())?).probe(ProbeRequest {}).await.map_err(|_| ())
    };
    host.listen(&path).unwrap();
    assert!(probe().await.is_ok());
    host.stop();
    assert!(!path.exists() && probe().await.is_err());
    host.listen(&path).unwrap();
    assert!(probe().await.is_ok());
    host.stop();
}

#[test]
fn requests_are_written_down_as_protobufs_python_prints_them() {
    let mount = volume_capability::MountVolume {
        fs_type: String::new(),
        mount_flags: vec!["discard".to_owned()],
        ..Default::default()
    };
    let capability = VolumeCapability {
        access_type: Some(volume_capability::AccessType::Mount(mount)),
        access_mode: Some(volume_capability::AccessMode {
            mode: volume_capability::access_mode::Mode::SingleNodeWriter.into(),
        }),
    };
    let request = CreateVolumeRequest {
        capacity_range: Some(CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 }),
        volume_capabilities: vec![capability],
        secrets: [("k".to_owned(), "v".to_owned())].into(),
        accessibility_requirements: Some(proto::TopologyRequirement {
            requisite: vec![Topology::default()],
            preferred: Vec::new(),
        }),
        ..request("n")
    };
    let expected = json!({
        "name": "n",
        "capacity_range": {"required_bytes": "1073741824"},
        "volume_capabilities": [
            {"mount": {"mount_flags": ["discard"]}, "access_mode": {"mode": "SINGLE_NODE_WRITER"}},
        ],
        "secrets": {"k": "v"},
        "accessibility_requirements": {"requisite": [{}]},
    });
    assert_eq!(as_json("csi.v1.CreateVolumeRequest", &request), expected);
    assert_eq!(as_json("csi.v1.ProbeRequest", &ProbeRequest {}), json!({}));
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
