use serde_json::{Value, json};

use super::*;
use crate::{
    csi::proto::controller_service_capability::rpc::Type as Rpc,
    csi_provisioner::testing::{DRIVER, map, reads, refusal, request, settings, settings_with},
    kube::testing::{Answer, Server},
};

/// A server with one secret and one attributes class.
fn server() -> Server {
    Server::new(|_, seen| match seen.url.as_str() {
        "/api/v1/namespaces/ns/secrets/s" => {
            Answer::json(200, &json!({"data": {"user": "YWRtaW4="}}))
        }
        "/apis/storage.k8s.io/v1/volumeattributesclasses/gold" => Answer::json(
            200,
            &json!({"metadata": {"name": "gold"}, "driverName": DRIVER, "parameters": {"iops": "9"}}),
        ),
        "/apis/storage.k8s.io/v1/volumeattributesclasses/foreign" => Answer::json(
            200,
            &json!({"metadata": {"name": "foreign"}, "driverName": "other.example.com"}),
        ),
        other => {
            let name = other.rsplit('/').next().unwrap();
            Answer::refusal(404, "NotFound", &format!("{name:?} not found"))
        }
    })
}

async fn prepared(
    settings: &ProvisionerSettings,
    spec: &Value,
    class: &Value,
) -> Result<Prepared, String> {
    let request = &mut request(spec, class);
    build(&reads(&server()), settings, None, request, None).await.map_err(refusal)
}

const NAME: &str = "csi.storage.k8s.io/provisioner-secret-name";
const NAMESPACE: &str = "csi.storage.k8s.io/provisioner-secret-namespace";

#[tokio::test]
async fn a_request_holds_what_claim_and_class_ask_for() {
    let settings =
        settings_with(&[Rpc::ModifyVolume], |settings| settings.flags.extra_create_metadata = true);
    let class = json!({
        "mountOptions": ["discard"],
        "parameters": {"pool": "rbd", "fsType": "xfs", NAME: "s", NAMESPACE: "ns",
                       "csiNodeStageSecretName": "${pvc.name}", "csiNodeStageSecretNamespace": "${pvc.namespace}"},
    });
    let spec = json!({"accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "volumeAttributesClassName": "gold"});
    let prepared = prepared(&settings, &spec, &class).await.unwrap();
    let create = &prepared.request;
    assert_eq!(create.name, "pvc-u");
    assert_eq!(
        create.capacity_range,
        Some(CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 })
    );
    assert_eq!(
        create.parameters,
        map(&[
            ("csi.storage.k8s.io/pv/name", "pvc-u"),
            ("csi.storage.k8s.io/pvc/name", "data"),
            ("csi.storage.k8s.io/pvc/namespace", "shop"),
            ("csiNodeStageSecretName", "${pvc.name}"),
            ("csiNodeStageSecretNamespace", "${pvc.namespace}"),
            ("fsType", "xfs"),
            ("pool", "rbd"),
        ])
    );
    assert_eq!(create.mutable_parameters, map(&[("iops", "9")]));
    assert_eq!(create.volume_capabilities.len(), 2);
    assert_eq!((create.secrets.len(), prepared.fs_type.as_str()), (0, "xfs"));
    assert_eq!(prepared.secret.credentials().unwrap().expose(), map(&[("user", "admin")]));
    let stage = SecretReference { namespace: "shop".into(), name: "data".into() };
    assert_eq!(prepared.secrets.node_stage, Some(stage));
}

/// Each claim has two errors; the one that external-provisioner finds first is reported.
#[tokio::test]
async fn the_first_error_in_external_provisioners_order_is_reported() {
    let bad_secret = |kind: &str| format!("csi.storage.k8s.io/{kind}-secret-name");
    let half = |label: &str| {
        format!(
            "failed to get name and namespace template from params: either name and namespace for {label} secrets specified, Both must be specified"
        )
    };
    let twice = "fstype specified in parameters with both \"fstype\" and \"csi.storage.k8s.io/fstype\" keys";
    let kinds = [
        ("provisioner", "Provisioner"),
        ("controller-publish", "ControllerPublish"),
        ("node-stage", "NodeStage"),
        ("node-publish", "NodePublish"),
        ("controller-expand", "ControllerExpand"),
        ("node-expand", "NodeExpand"),
        ("controller-modify", "ControllerModify"),
    ];
    let fstypes = json!({"parameters": {"fstype": "a", "fsType": "b"}});
    let mut table = vec![
        (json!({"volumeAttributesClassName": "gold", "selector": {}}), json!({}),
         "CSI driver does not support VolumeAttributesClass: controller MODIFY_VOLUME capability is not reported".to_owned()),
        (json!({"selector": {}}), fstypes.clone(), "claim Selector is not supported".to_owned()),
        (json!({"accessModes": ["Odd"]}), fstypes, twice.to_owned()),
        (json!({"accessModes": ["Odd"]}), json!({"parameters": {bad_secret("provisioner"): "s"}}), "unsupported AccessMode combination: [Odd]".to_owned()),
        (json!({}), json!({"parameters": {NAME: "none", NAMESPACE: "ns", bad_secret("node-stage"): "s"}}),
         "error getting secret none in namespace ns: \"none\" not found".to_owned()),
        (json!({}), json!({"parameters": {bad_secret("controller-modify"): "s", "csi.storage.k8s.io/odd": "x"}}), half("ControllerModify")),
        (json!({}), json!({"parameters": {"csi.storage.k8s.io/odd": "x", "csi.storage.k8s.io/b": "x"}}),
         "failed to strip CSI Parameters of prefixed keys: found unknown parameter key \"csi.storage.k8s.io/b\" with reserved namespace csi.storage.k8s.io/".to_owned()),
    ];
    for pair in kinds.windows(2) {
        let [(first, label), (second, _)] = pair else { unreachable!() };
        let parameters = json!({"parameters": {bad_secret(first): "s", bad_secret(second): "s"}});
        table.push((json!({}), parameters, half(label)));
    }
    for (spec, class, expected) in table {
        let observed_text = prepared(&settings(&[]), &spec, &class).await.unwrap_err();
        assert_eq!(observed_text, expected, "{spec} {class}");
    }
    let odd = json!({"parameters": {"csi.storage.k8s.io/odd": "x"}});
    let none = json!({"volumeAttributesClassName": "none"});
    let observed_text = prepared(&settings(&[Rpc::ModifyVolume]), &none, &odd).await.unwrap_err();
    assert!(observed_text.starts_with("failed to strip"), "{observed_text}");
}

#[tokio::test]
async fn a_claim_without_a_volume_name_is_reported_in_order() {
    let nameless = |spec: Value| {
        let mut request = request(&spec, &json!({"parameters": {"fstype": "a", "fsType": "b"}}));
        request.volume_name = Err(Failure::new("no name"));
        draft(&settings(&[]), &request, None).map_err(refusal).unwrap_err()
    };
    assert_eq!(nameless(json!({})), "no name");
    assert_eq!(nameless(json!({"selector": {}})), "claim Selector is not supported");
}

#[tokio::test]
async fn an_attributes_class_must_be_there_and_the_drivers() {
    let modify = settings(&[Rpc::ModifyVolume]);
    let named = |name: &str| json!({"volumeAttributesClassName": name});
    for (name, expected) in [
        ("none", "\"none\" not found"),
        (
            "foreign",
            "VAC foreign referenced in PVC is for driver other.example.com which does not match driver name disk.example.com",
        ),
        ("a/b", "invalid resource name \"a/b\": [may not contain '/']"),
    ] {
        let observed_text = prepared(&modify, &named(name), &json!({})).await.unwrap_err();
        assert_eq!(observed_text, expected, "{name}");
    }
    let mut ignoring = modify;
    ignoring.driver.volume_attributes_classes = false;
    for name in ["none", "foreign", "gold", ""] {
        let prepared = prepared(&ignoring, &named(name), &json!({})).await.unwrap();
        assert_eq!(prepared.request.mutable_parameters, map(&[]), "{name}");
    }
}

/// A size that overflows is not requested; others are requested exactly, rounded up to bytes.
#[test]
fn sizes_are_asked_for_in_whole_bytes() {
    for (storage, bytes) in [
        (json!("1Gi"), 1 << 30),
        (json!("1.5Gi"), 1_610_612_736),
        (json!("1G"), 1_000_000_000),
        (json!("100m"), 1),
        (json!("1500m"), 2),
        (json!("1e3"), 1000),
        (json!("0"), 0),
        (json!("8Ei"), i64::MAX),
        (json!("16Ei"), i64::MAX),
        (json!("9E"), 9_000_000_000_000_000_000),
        (json!("20E"), 0),
        (json!("9.3E"), 0),
        (json!("9300P"), 0),
        (json!("1e19"), 0),
    ] {
        let request =
            request(&json!({"resources": {"requests": {"storage": storage}}}), &json!({}));
        let prepared = draft(&settings(&[]), &request, None).map_err(refusal).unwrap();
        let range = prepared.request.capacity_range.unwrap();
        assert_eq!((range.required_bytes, range.limit_bytes), (bytes, 0), "{storage}");
    }
    let none = request(&json!({"resources": {"limits": {"storage": "5Gi"}}}), &json!({}));
    let prepared = draft(&settings(&[]), &none, None).map_err(refusal).unwrap();
    assert_eq!(prepared.request.capacity_range.unwrap().required_bytes, 0);
    let odd = request(&json!({"resources": {"requests": {"storage": "1Xi"}}}), &json!({}));
    let observed_text = draft(&settings(&[]), &odd, None).map_err(refusal).unwrap_err();
    assert_eq!(
        observed_text,
        "the claim requests \"1Xi\" of storage, which is no quantity: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
}

#[test]
fn a_driver_must_be_able_to_make_volumes() {
    let text = |what: &str| {
        format!(
            "CSI driver does not support dynamic provisioning: {what} capability is not reported"
        )
    };
    let mut lacking = settings(&[]);
    lacking.driver.capabilities.controller.clear();
    let observed_text = |settings: &ProvisionerSettings| {
        draft(settings, &request(&json!({}), &json!({})), None).map_err(refusal).unwrap_err()
    };
    assert_eq!(observed_text(&lacking), text("controller CREATE_DELETE_VOLUME"));
    lacking.driver.capabilities.plugin.clear();
    assert_eq!(observed_text(&lacking), text("plugin CONTROLLER_SERVICE"));
}
