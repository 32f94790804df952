//! Classes and volumes of in-tree plugins, in simulated time: served by the driver that took over,
//! deleted by what they are to it, and never when somebody else's data would go with them.

use std::time::Duration;

use serde_json::{Value, json};
use support::simulation::{Simulation, class, provisioned_volume, secret};
use testkit::apiserver::faults::{Effect, Rule};
use tokio::time::sleep;

const EBS: &str = "ebs.csi.aws.com";
const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// A cluster with this driver and a class of the plugin it took over from.
fn simulation(driver: &str, plugin: &str, parameters: &Value) -> Simulation {
    let simulation = Simulation::scripted(json!({"name": driver}));
    let fields =
        json!({"provisioner": plugin, "reclaimPolicy": "Delete", "parameters": parameters});
    simulation.create(&class("tree", &fields));
    simulation
}

/// A claim of that class, as the cluster hands it over to the driver; gives its UID.
fn claim(simulation: &Simulation, driver: &str) -> String {
    claim_with(simulation, "data", driver, &json!({}))
}

/// The same of another name, whose spec has these fields, too.
fn claim_with(simulation: &Simulation, name: &str, driver: &str, more: &Value) -> String {
    let mut claim = support::simulation::claim(name);
    claim["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"] = json!(driver);
    claim["spec"]["storageClassName"] = json!("tree");
    claim["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    simulation.create(&claim)
}

/// A PersistentVolume with this source, provisioned by this name, for a claim that is gone.
fn volume(name: &str, by: &str, source: (&str, Value)) -> Value {
    let mut volume = provisioned_volume(name, "");
    volume["metadata"]["finalizers"] = json!([FINALIZER]);
    volume["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": by});
    volume["spec"].as_object_mut().unwrap().remove("csi");
    volume["spec"][source.0] = source.1;
    volume
}

fn ebs(name: &str, id: &str) -> Value {
    volume(name, "kubernetes.io/aws-ebs", ("awsElasticBlockStore", json!({"volumeID": id})))
}

/// A PersistentVolume that an admin made to keep a volume's data.
fn kept(driver: &str, handle: &str) -> Value {
    let mut kept = volume("kept", "", ("csi", json!({"driver": driver, "volumeHandle": handle})));
    kept["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    kept["metadata"]["annotations"] = json!({});
    kept["metadata"]["finalizers"] = json!([]);
    kept
}

fn exists(simulation: &Simulation, name: &str) -> bool {
    simulation.volumes().iter().any(|volume| volume["metadata"]["name"] == name)
}

/// The ids of the volumes that the driver was to delete.
fn deleted(simulation: &Simulation) -> Vec<String> {
    let calls = simulation.requests("DeleteVolume").into_iter();
    calls.map(|call| call["volume_id"].as_str().unwrap().to_owned()).collect()
}

/// CreateVolume and DeleteVolume in the order of the driver's calls.
fn calls(simulation: &Simulation) -> Vec<String> {
    let calls = simulation.driver.journal().calls().into_iter().map(|call| call.method.to_string());
    calls.filter(|method| method.ends_with("eVolume")).collect()
}

/// The text of an event about an object without a namespace.
fn message(simulation: &Simulation, about: &str) -> String {
    let events = simulation.api.list("Event", "default");
    let event = events.iter().find(|event| event["involvedObject"]["name"] == about).unwrap();
    event["message"].as_str().unwrap().to_owned()
}

/// The server fills in what an in-tree source lacks: it is the same volume all the same.
#[tokio::test(start_paused = true)]
async fn a_volume_whose_saving_was_not_answered_is_known_again() {
    const AZURE: &str = "disk.csi.azure.com";
    let simulation = simulation(AZURE, "kubernetes.io/azure-disk", &json!({}));
    let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";
    simulation.script(json!({"create_volume": [{"volume": {"volume_id": id}}]}));
    simulation.faults().add(Rule::on("create", "persistentvolumes", Effect::CutAfter).times(1));
    simulation.start();
    let uid = claim(&simulation, AZURE);
    let succeeded = |s: &Simulation| s.has_event("data", "ProvisioningSucceeded");
    simulation.until("it is reported", succeeded).await;
    assert!(simulation.is_saved(&uid));
    assert_eq!(simulation.volumes()[0]["spec"]["azureDisk"]["cachingMode"], "ReadWrite");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(calls(&simulation), ["CreateVolume"]);
    assert_eq!(simulation.volumes().len(), 1);
}

/// vSphere's volumes are known to the plugin by their path, which the driver did not return here.
#[tokio::test(start_paused = true)]
async fn a_refused_in_tree_volume_is_removed_under_the_drivers_own_id() {
    const VSPHERE: &str = "csi.vsphere.vmware.com";
    let simulation = simulation(VSPHERE, "kubernetes.io/vsphere-volume", &json!({}));
    simulation.start();
    let uid = claim(&simulation, VSPHERE);
    simulation.until_failed("data").await;
    let text = simulation.event_messages("data", "ProvisioningFailed").remove(0);
    assert!(text.contains("spec.vsphereVolume.volumePath: Required value"), "{text}");
    assert_eq!(simulation.calls("DeleteVolume"), 0, "the claim still wants it");
    simulation.delete_claim("data");
    simulation.until("it is removed", |s| s.left_at_driver().is_empty()).await;
    assert_eq!(deleted(&simulation), [format!("vol-pvc-{uid}")]);
}

/// What an in-tree volume is to the driver hangs on labels: those of now count.
#[tokio::test(start_paused = true)]
async fn an_in_tree_volume_is_deleted_by_what_the_api_server_says_now() {
    const GCE: &str = "pd.csi.storage.gke.io";
    let simulation = simulation(GCE, "kubernetes.io/gce-pd", &json!({}));
    let disk = ("gcePersistentDisk", json!({"pdName": "pd"}));
    let mut before = volume("disk", "kubernetes.io/gce-pd", disk);
    before["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": "us-east1-a"});
    simulation.api.create(&before).unwrap();
    simulation.start();
    sleep(Duration::from_secs(5)).await;
    let delay = Effect::Delay(Duration::from_millis(300));
    simulation.faults().add(Rule::on("get", "persistentvolumes", delay).times(1));
    simulation.phase("disk", "Released");
    // Time to take it in hand, none to read it.
    sleep(Duration::from_millis(100)).await;
    let moved = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "us-east1-b"}}});
    simulation.api.merge("PersistentVolume", "", "disk", &moved).unwrap();
    simulation.until("it is gone", |s| !exists(s, "disk")).await;
    assert_eq!(deleted(&simulation), ["projects/UNSPECIFIED/zones/us-east1-b/disks/pd"]);
}

#[tokio::test(start_paused = true)]
async fn data_that_an_admin_keeps_under_the_driver_is_not_deleted_with_the_in_tree_volume() {
    let gce = json!({"pdName": "pd"});
    let table = [
        (
            EBS,
            "kubernetes.io/aws-ebs",
            ("awsElasticBlockStore", json!({"volumeID": "aws://us-east-1a/vol-1"})),
            "vol-1",
        ),
        // The plugin's volumes do not name the project.
        (
            "pd.csi.storage.gke.io",
            "kubernetes.io/gce-pd",
            ("gcePersistentDisk", gce),
            "projects/p/zones/us-east1-a/disks/pd",
        ),
    ];
    for (driver, plugin, source, handle) in table {
        let simulation = simulation(driver, plugin, &json!({}));
        let mut old = volume("old", plugin, source);
        old["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": "us-east1-a"});
        simulation.api.create(&old).unwrap();
        simulation.api.create(&kept(driver, handle)).unwrap();
        simulation.start();
        sleep(Duration::from_secs(1)).await;
        simulation.phase("old", "Released");
        simulation
            .until("it is reported", |s| s.has_cluster_event("old", "VolumeFailedDelete"))
            .await;
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(simulation.calls("DeleteVolume"), 0);
        assert!(message(&simulation, "old").contains(r#"PersistentVolume "kept""#));
        simulation.api.delete("PersistentVolume", "", "kept").unwrap();
        simulation.until("it is deleted", |s| !exists(s, "old")).await;
        assert_eq!(simulation.calls("DeleteVolume"), 1);
    }
}

/// GCE's disks of one name and zone, which may be of two projects.
#[tokio::test(start_paused = true)]
async fn volumes_that_may_be_two_are_deleted_each_by_its_own_id() {
    const GCE: &str = "pd.csi.storage.gke.io";
    let simulation = Simulation::scripted(json!({"name": GCE}));
    let handles = ["projects/p1/zones/z/disks/data", "projects/p2/zones/z/disks/data"];
    for (name, handle) in ["one", "two"].into_iter().zip(handles) {
        let source = json!({"driver": GCE, "volumeHandle": handle});
        simulation.create(&volume(name, GCE, ("csi", source)));
        simulation.phase(name, "Released");
    }
    simulation.start();
    simulation.until("nothing is left", |s| s.volumes().is_empty()).await;
    let mut deleted = simulation.requests("DeleteVolume");
    deleted.sort_by_key(|call| call["volume_id"].to_string());
    assert_eq!(deleted.iter().map(|call| &call["volume_id"]).collect::<Vec<_>>(), handles);
}

#[tokio::test(start_paused = true)]
async fn in_tree_volumes_share_nothing_with_others_of_their_kind() {
    let simulation = simulation(EBS, "kubernetes.io/aws-ebs", &json!({}));
    for (name, id) in [("one", "vol-1"), ("two", "aws:///vol-2")] {
        simulation.api.create(&ebs(name, id)).unwrap();
        simulation.phase(name, "Released");
    }
    let nfs = ("nfs", json!({"server": "s", "path": "/p"}));
    simulation.api.create(&volume("other", "example.com/nfs", nfs)).unwrap();
    simulation.start();
    simulation.until("both are gone", |s| s.volumes().len() == 1).await;
    let mut ids = deleted(&simulation);
    ids.sort();
    assert_eq!(ids, ["vol-1", "vol-2"]);
}

#[tokio::test(start_paused = true)]
async fn volumes_of_other_plugins_are_refused_whatever_their_annotation_says() {
    let simulation = simulation(EBS, "kubernetes.io/aws-ebs", &json!({}));
    let disk = ("gcePersistentDisk", json!({"pdName": "pd"}));
    simulation.api.create(&volume("disk", "kubernetes.io/aws-ebs", disk)).unwrap();
    simulation.phase("disk", "Released");
    simulation.start();
    simulation.until("it is reported", |s| s.has_cluster_event("disk", "VolumeFailedDelete")).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(simulation.calls("DeleteVolume"), 0);
    assert!(message(&simulation, "disk").contains("did not take over from"));
}

/// external-provisioner looks for the driver's name in the class, and for its volumes among those of CSI.
#[tokio::test(start_paused = true)]
async fn a_volume_of_an_in_tree_class_is_cloned() {
    let simulation = simulation(EBS, "kubernetes.io/aws-ebs", &json!({}));
    let claim = |name: &str, more: Value| claim_with(&simulation, name, EBS, &more);
    let uid = claim("origin", json!({"volumeName": "old"}));
    let bound = json!({"status": {"phase": "Bound"}});
    simulation.api.merge("PersistentVolumeClaim", "sc", "origin", &bound).unwrap();
    let mut old = ebs("old", "aws://us-east-1a/vol-1");
    old["spec"]["claimRef"] =
        json!({"kind": "PersistentVolumeClaim", "namespace": "sc", "name": "origin", "uid": uid});
    simulation.api.create(&old).unwrap();
    simulation.phase("old", "Bound");
    simulation.start();
    let clone =
        claim("copy", json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "origin"}}));
    simulation.until("it is saved", |s| s.is_saved(&clone)).await;
    let asked = simulation.requests("CreateVolume").remove(0);
    assert_eq!(asked["volume_content_source"], json!({"volume": {"volume_id": "vol-1"}}));
}

mod ceph {
    use super::*;

    const RBD: &str = "rbd.csi.ceph.com";

    fn cluster() -> Simulation {
        let parameters = json!({"monitors": "10.0.0.1:6789", "adminSecretName": "admin",
                                "adminSecretNamespace": "sc", "pool": "kube"});
        let simulation = simulation(RBD, "kubernetes.io/rbd", &parameters);
        simulation.create(&secret("admin", "k"));
        let mut image = volume(
            "old",
            "kubernetes.io/rbd",
            (
                "rbd",
                json!({"monitors": ["10.0.0.1:6789"], "pool": "kube", "image": "kubernetes-dynamic-pvc-i"}),
            ),
        );
        image["spec"]["storageClassName"] = json!("tree");
        simulation.api.create(&image).unwrap();
        simulation.phase("old", "Released");
        simulation
    }

    #[tokio::test(start_paused = true)]
    async fn the_retired_plugin_is_nobodys_by_default() {
        let simulation = cluster();
        simulation.start();
        claim(&simulation, RBD);
        sleep(Duration::from_secs(600)).await;
        assert_eq!(calls(&simulation), [] as [&str; 0]);
        let why = r#"storage class "tree" is for the provisioner "kubernetes.io/rbd", but the claim is annotated for "rbd.csi.ceph.com""#;
        assert_eq!(simulation.event_messages("data", "ProvisioningFailed"), [why]);
        assert!(exists(&simulation, "old"));
    }

    #[tokio::test(start_paused = true)]
    async fn with_its_gate_the_retired_plugin_is_served() {
        let simulation = cluster();
        let answer = json!({"volume_id": "0001-u", "volume_context": {"imageName": "csi-vol-u", "pool": "kube", "clusterID": "c"}});
        simulation.script(json!({"create_volume": [{"volume": answer}]}));
        simulation.start_with(&["--feature-gates=CSIMigrationRBD=true"]);
        let uid = claim(&simulation, RBD);
        simulation.until("it is saved", |s| s.is_saved(&uid)).await;
        simulation.until("the old one is gone", |s| !exists(s, "old")).await;
        let asked = simulation.requests("CreateVolume").remove(0);
        assert_eq!(asked["parameters"]["migration"], "true");
        assert_eq!(asked["secrets"], json!({"key": "k"}));
        let made = simulation.volumes().remove(0);
        assert_eq!(made["spec"]["rbd"]["image"], "csi-vol-u");
        simulation.until_gone(&uid).await;
        // The plugin's image by the hash of its monitors, its name, and its pool in hexadecimal digits.
        let old = "mig_mons-6d34dafc1f01fb9c42fd3dc84e3422de_image-i_6b756265";
        assert_eq!(deleted(&simulation), [old, "0001-u"]);
    }
}
