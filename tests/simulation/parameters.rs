//! What flags, classes and secrets say, through the whole program in simulated time.

use std::time::Duration;

use serde_json::{Value, json};
use support::simulation::{Simulation, claim, foreign_volume};
use tokio::time::sleep;

const NOT_TEXT: &str = "rpc error: code = Internal desc = grpc: error while marshaling: string field contains invalid UTF-8";

/// A secret whose value is this text in base64.
fn secret(simulation: &Simulation, value: &str) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
                        "metadata": {"name": "key", "namespace": "sc"}, "data": {"k": value}});
    simulation.api.create(&secret).unwrap();
}

fn with_secret() -> Value {
    json!({"parameters": {
        "csi.storage.k8s.io/provisioner-secret-name": "key",
        "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}",
    }})
}

/// CSI carries text: a secret of other bytes is reported and never sent, until it is corrected.
#[tokio::test(start_paused = true)]
async fn a_secret_that_is_no_text_is_reported_and_not_sent() {
    let simulation = Simulation::new(1);
    simulation.replace_class(&with_secret());
    secret(&simulation, "/w==");
    simulation.start();
    let uid = simulation.create_claim("data");
    simulation.until_failed("data").await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(simulation.event_messages("data", "ProvisioningFailed"), [NOT_TEXT]);
    assert_eq!(simulation.calls("CreateVolume"), 0);
    simulation.api.delete("Secret", "sc", "key").unwrap();
    secret(&simulation, "dGV4dA==");
    simulation.until("the volume is saved", |s| s.is_saved(&uid)).await;
    assert_eq!(simulation.requests("CreateVolume")[0]["secrets"], json!({"k": "text"}));
}

/// The same at the volume's end; a secret that is gone is passed over.
#[tokio::test(start_paused = true)]
async fn a_volume_is_not_deleted_with_a_secret_that_is_no_text() {
    let simulation = Simulation::new(1);
    simulation.replace_class(&with_secret());
    secret(&simulation, "dGV4dA==");
    simulation.start();
    let uid = simulation.served().await;
    // What was read for the first call serves others for a second.
    sleep(Duration::from_secs(1)).await;
    simulation.api.delete("Secret", "sc", "key").unwrap();
    secret(&simulation, "/w==");
    simulation.delete_claim("data");
    simulation.release(&uid);
    let name = format!("pvc-{uid}");
    simulation.until("it is reported", |s| s.has_cluster_event(&name, "VolumeFailedDelete")).await;
    assert_eq!(simulation.calls("DeleteVolume"), 0);
    simulation.api.delete("Secret", "sc", "key").unwrap();
    simulation.until("the volume is gone", |s| s.volumes().is_empty()).await;
    assert_eq!(simulation.requests("DeleteVolume")[0].get("secrets"), None);
}

/// A volume that another process made under the usual name is found whatever the flags say now.
#[tokio::test(start_paused = true)]
async fn without_a_prefix_a_claim_that_has_its_volume_is_left_alone() {
    let simulation = Simulation::new(1);
    let uid = simulation.create_claim("data");
    simulation.api.create(&foreign_volume(&uid, &uid, "handle")).unwrap();
    simulation.start_with(&["--volume-name-prefix="]);
    sleep(Duration::from_secs(60)).await;
    assert!(simulation.event_messages("data", "ProvisioningFailed").is_empty());
    assert_eq!(simulation.calls("CreateVolume"), 0);
}

/// Two claims whose truncated UIDs are the same: the second gets an event, and the driver is not asked to
/// share the first one's volume.
#[tokio::test(start_paused = true)]
async fn a_name_that_two_claims_share_serves_one_of_them() {
    let simulation = Simulation::new(1);
    simulation.start_with(&["--volume-name-uuid-length=1"]);
    // More claims than there are names.
    let names: Vec<String> = (0..17).map(|number| format!("data-{number}")).collect();
    for name in &names {
        simulation.create_claim(name);
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(60)).await;
    let volumes = simulation.volumes().len();
    assert_eq!(simulation.calls("CreateVolume"), volumes);
    let succeeded = names.iter().filter(|name| simulation.has_event(name, "ProvisioningSucceeded"));
    assert_eq!(succeeded.count(), volumes);
    let messages =
        names.iter().flat_map(|name| simulation.event_messages(name, "ProvisioningFailed"));
    let messages: Vec<String> = messages.collect();
    assert_eq!(messages.len(), names.len() - volumes);
    assert!(
        messages.iter().all(|text| text.contains("exists already and is for the claim sc/data-"))
    );
}

/// What the feature gate `CephRBDExtensions` adds.
mod ceph_rbd {
    use super::*;

    const GATE: &str = "--feature-gates=CephRBDExtensions=true";
    const XFS: &str = "fstype xfs volume size request must be equal or larger than 1Gi, but your volume size request is 512Mi ";

    /// A cluster whose class is one of an RBD driver, with secrets `make` and `remove`.
    fn rbd(more: &Value) -> Simulation {
        let simulation = Simulation::new(1);
        let mut parameters = json!({
            "pool": "rbd",
            "csi.storage.k8s.io/provisioner-secret-name": "make",
            "csi.storage.k8s.io/provisioner-secret-namespace": "sc",
        });
        for (key, value) in more.as_object().unwrap() {
            parameters[key] = value.clone();
        }
        simulation.replace_class(&json!({"parameters": parameters, "reclaimPolicy": "Delete"}));
        for name in ["make", "data-remove"] {
            let secret = json!({"apiVersion": "v1", "kind": "Secret",
                                "metadata": {"name": name, "namespace": "sc"}, "stringData": {"id": name}});
            simulation.api.create(&secret).unwrap();
        }
        simulation
    }

    fn small_claim(simulation: &Simulation) -> String {
        let mut small = claim("data");
        small["spec"]["resources"]["requests"]["storage"] = json!("512Mi");
        simulation.create(&small)
    }

    #[tokio::test(start_paused = true)]
    async fn a_volume_too_small_for_xfs_is_refused_before_any_call() {
        let by_class = json!({"csi.storage.k8s.io/fstype": "xfs"});
        for (class, flags) in
            [(&by_class, &[GATE][..]), (&json!({}), &[GATE, "--default-fstype=xfs"])]
        {
            let simulation = rbd(class);
            simulation.start_with(flags);
            small_claim(&simulation);
            sleep(Duration::from_secs(60)).await;
            assert_eq!(simulation.event_messages("data", "ProvisioningFailed"), [XFS]);
            assert_eq!(simulation.calls("CreateVolume"), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_not_without_the_gate_or_for_cephfs() {
        let cephfs = json!({"fsName": "fs", "csi.storage.k8s.io/fstype": "xfs"});
        let xfs = json!({"csi.storage.k8s.io/fstype": "xfs"});
        for (class, flags) in [(&cephfs, &[GATE][..]), (&xfs, &[])] {
            let simulation = rbd(class);
            simulation.start_with(flags);
            let uid = small_claim(&simulation);
            simulation.until("it is saved", |s| s.is_saved(&uid)).await;
        }
    }

    fn with_remover() -> Value {
        json!({
            "csi.storage.k8s.io/delete-secret-name": "${pvc.name}-remove",
            "csi.storage.k8s.io/delete-secret-namespace": "${pvc.namespace}",
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_volume_is_deleted_with_the_secret_for_that() {
        let simulation = rbd(&with_remover());
        simulation.start_with(&[GATE]);
        let uid = simulation.served().await;
        let made = &simulation.requests("CreateVolume")[0];
        assert_eq!(made["parameters"], json!({"pool": "rbd"}));
        assert_eq!(made["secrets"], json!({"id": "make"}));
        simulation.delete_claim("data");
        simulation.api.delete("StorageClass", "", "fast").unwrap();
        simulation.release(&uid);
        simulation.until("it is gone", |s| s.volumes().is_empty()).await;
        assert_eq!(simulation.requests("DeleteVolume")[0]["secrets"], json!({"id": "data-remove"}));
    }

    /// Made before the gate, or by hand: it names no secret itself.
    #[tokio::test(start_paused = true)]
    async fn a_volume_without_annotations_is_deleted_as_its_class_says() {
        for (class, secret) in [(with_remover(), "data-remove"), (json!({}), "make")] {
            let simulation = rbd(&class);
            simulation.start_with(&[GATE]);
            let uid = simulation.served().await;
            let bare = json!({"metadata": {"annotations": {
                "volume.kubernetes.io/provisioner-deletion-secret-name": null,
                "volume.kubernetes.io/provisioner-deletion-secret-namespace": null,
            }}});
            simulation.api.merge("PersistentVolume", "", &format!("pvc-{uid}"), &bare).unwrap();
            simulation.until_gone(&uid).await;
            assert_eq!(simulation.requests("DeleteVolume")[0]["secrets"], json!({"id": secret}));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn its_parameters_mean_nothing_without_the_gate() {
        let simulation = rbd(&with_remover());
        simulation.start();
        simulation.create_claim("data");
        simulation.until_failed("data").await;
        let messages = simulation.event_messages("data", "ProvisioningFailed").remove(0);
        assert!(messages.contains("csi.storage.k8s.io/delete-secret-name"), "{messages}");
        assert_eq!(simulation.calls("CreateVolume"), 0);
    }
}

/// The values of the metrics' label `class`.
fn classes(metrics: &str) -> std::collections::BTreeSet<&str> {
    metrics.lines().filter_map(|line| line.split("class=\"").nth(1)?.split('"').next()).collect()
}

/// Users name classes as they like, in the field that metrics show also where another class counts. A
/// class that exists is counted under its name, however many others do not.
#[tokio::test(start_paused = true)]
async fn claims_of_classes_that_do_not_exist_make_few_series() {
    let simulation = Simulation::new(1);
    let process = simulation.start();
    for n in 0..300 {
        let mut claim = claim(&format!("data-{n}"));
        claim["spec"]["storageClassName"] = json!(format!("wrong-{n}"));
        if n % 10 == 0 {
            let annotation = "volume.beta.kubernetes.io/storage-class";
            claim["metadata"]["annotations"][annotation] = json!("fast");
        }
        simulation.api.create(&claim).unwrap();
    }
    sleep(Duration::from_secs(60)).await;
    let metrics = process.metrics();
    let values = classes(&metrics);
    assert!(values.len() <= 66 && values.contains("unknown"), "{values:?}");
    assert_eq!(simulation.volumes().len(), 30);
    let uid = simulation.create_claim("right");
    simulation.until("its volume is saved", |s| s.is_saved(&uid)).await;
    let counted = "controller_persistentvolumeclaim_provision_total{class=\"fast\",source=\"\"} 1";
    assert!(process.metrics().lines().any(|line| line == counted));
}
