use serde_json::{Value, json};

use super::*;
use crate::csi_provisioner::testing::{DRIVER, settings, settings_with};

const EBS: &str = "ebs.csi.aws.com";
const PLUGIN: &str = "kubernetes.io/aws-ebs";

/// Settings of a driver that took over from a plugin.
fn migrating() -> ProvisionerSettings {
    settings_with(&[], |settings| {
        settings.driver.name = EBS.into();
        settings.migration = Migration::of_driver(EBS, false);
    })
}

fn volume(spec: &Value) -> Volume {
    serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap()
}

fn class(provisioner: &str, parameters: &Value) -> Arc<StorageClass> {
    let class =
        json!({"metadata": {"name": "tree"}, "provisioner": provisioner, "parameters": parameters});
    Arc::new(serde_json::from_value(class).unwrap())
}

#[test]
fn the_class_of_a_deletion_is_translated_for_in_tree_volumes_alone() {
    let in_tree = volume(&json!({"awsElasticBlockStore": {"volumeID": "vol-1"}}));
    let csi = volume(&json!({"csi": {"driver": EBS, "volumeHandle": "vol-1"}}));
    let keys = |volume: &Volume, provisioner: &str| {
        let class = class(provisioner, &json!({"fsType": "xfs"}));
        let class = migrating().class_for_deletion(volume, Some(class)).unwrap().unwrap();
        class.parameters.keys().next().unwrap().clone()
    };
    assert_eq!(keys(&in_tree, PLUGIN), "csi.storage.k8s.io/fstype");
    assert_eq!(keys(&in_tree, EBS), "fsType");
    assert_eq!(keys(&csi, PLUGIN), "fsType");
    assert!(migrating().class_for_deletion(&in_tree, None).unwrap().is_none());
}

#[test]
fn the_handle_depends_on_the_volumes_source() {
    let handle = |settings: &ProvisionerSettings, spec: Value| {
        settings.handle(&volume(&spec)).map(Cow::into_owned).map_err(|why| why.to_string())
    };
    let ebs = || json!({"awsElasticBlockStore": {"volumeID": "aws:///vol-1"}});
    let csi = |driver: &str| json!({"csi": {"driver": driver, "volumeHandle": "h"}});
    assert_eq!(handle(&migrating(), csi(EBS)), Ok("h".into()));
    assert_eq!(handle(&migrating(), ebs()), Ok("vol-1".into()));
    assert_eq!(
        handle(&migrating(), csi("other")),
        Err(r#"the volume belongs to the CSI driver "other", but its annotation names "ebs.csi.aws.com": it is not deleted"#.into())
    );
    let foreign = |driver: &str| {
        Err(format!(
            "the volume belongs to an in-tree plugin that the CSI driver {driver:?} did not take over from, but its annotation names the driver: it is not deleted"
        ))
    };
    assert_eq!(handle(&migrating(), json!({"cinder": {"volumeID": "c"}})), foreign(EBS));
    assert_eq!(handle(&settings(&[]), ebs()), foreign(DRIVER));
    for other in [json!({}), json!({"nfs": {"server": "s"}})] {
        assert_eq!(handle(&migrating(), other), Err("invalid CSI PV".into()));
    }
    let odd = json!({"awsElasticBlockStore": {"volumeID": "aws://z/disk"}});
    assert_eq!(
        handle(&migrating(), odd),
        Err("failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://z/disk)".into())
    );
}

/// With `--node-deployment` the node evaluates the affinity in the driver's keys.
#[test]
fn an_in_tree_volumes_affinity_has_the_drivers_keys() {
    let terms = |key: &str| {
        json!({"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": key, "operator": "In", "values": ["us-east-1a"]}]}]}})
    };
    let reported = |spec: Value| {
        let affinity = migrating().node_affinity(&volume(&spec)).unwrap().map(Cow::into_owned);
        serde_json::to_value(affinity).unwrap()
    };
    let zone = terms("topology.kubernetes.io/zone");
    let ebs = json!({"awsElasticBlockStore": {"volumeID": "vol-1"}, "nodeAffinity": zone});
    assert_eq!(reported(ebs), terms("topology.ebs.csi.aws.com/zone"));
    let csi = json!({"csi": {"driver": EBS, "volumeHandle": "h"}, "nodeAffinity": zone});
    assert_eq!(reported(csi), zone);
    let foreign = volume(&json!({"cinder": {"volumeID": "c"}, "nodeAffinity": zone}));
    assert!(migrating().node_affinity(&foreign).is_err());
}

#[test]
fn a_class_of_the_plugin_may_name_a_secret_in_its_own_way() {
    const PORTWORX: &str = "pxd.portworx.com";
    let migration = Migration::of_driver(PORTWORX, false);
    let reads = |provisioner: &str, key: &str| {
        let class = class(provisioner, &json!({key: "tok"}));
        reads_secret(&class, PORTWORX, migration)
    };
    let (own, new) =
        ("openstorage.io/auth-secret-name", "csi.storage.k8s.io/provisioner-secret-name");
    assert!(reads("kubernetes.io/portworx-volume", own));
    assert!(reads("kubernetes.io/portworx-volume", new) && reads(PORTWORX, new));
    assert!(!reads(PORTWORX, own) && !reads("other.example.com", new));
    assert!(!reads("kubernetes.io/portworx-volume", "repl"));
}
