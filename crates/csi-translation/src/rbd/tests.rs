use serde_json::{Value, json};

use super::*;
use crate::testing::{class, csi, handle, in_tree};

const MONS: &str = "10.70.53.126:6789,10.70.53.156:6789";

fn translated(given: &Value) -> Result<Value, String> {
    class(&PLUGIN, given, &json!([])).map(|class| class["parameters"].clone())
}

#[test]
fn classes() {
    let secrets = json!({
        "csi.storage.k8s.io/controller-expand-secret-name": "ceph-admin-secret",
        "csi.storage.k8s.io/controller-expand-secret-namespace": "default",
        "csi.storage.k8s.io/node-stage-secret-name": "ceph-admin-secret",
        "csi.storage.k8s.io/node-stage-secret-namespace": "default",
        "csi.storage.k8s.io/provisioner-secret-name": "ceph-admin-secret",
        "csi.storage.k8s.io/provisioner-secret-namespace": "default",
    });
    let with = |more: Value| {
        let mut all = secrets.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Ok(all)
    };
    let given = json!({"adminId": "kubeadmin", "monitors": MONS, "pool": "replicapool",
                       "adminSecretName": "ceph-admin-secret", "adminSecretNamespace": "default"});
    let own = json!({"adminId": "kubeadmin", "pool": "replicapool", "migration": "true",
                     "clusterID": "7982de6a23b77bce50b1ba9f2e879cce", "monitors": MONS});
    assert_eq!(translated(&given), with(own));
    // Defaults of the class, and parameters that the plugin did not support.
    let given = json!({"Monitors": MONS, "AdminSecretName": "ceph-admin-secret", "userId": "dropped",
                       "imageFormat": "2", "imageFeatures": "layering", "fsType": "ext4"});
    let own = json!({"pool": "rbd", "migration": "true", "imageFormat": "2", "imageFeatures": "layering",
                     "csi.storage.k8s.io/fstype": "ext4",
                     "clusterID": "7982de6a23b77bce50b1ba9f2e879cce", "monitors": MONS});
    assert_eq!(translated(&given), with(own));
}

#[test]
fn a_class_without_secret_or_monitors_is_an_error() {
    let table = [
        (json!({"monitors": MONS, "adminSecretName": ""}), "missing Ceph admin secret name"),
        (json!({}), "missing Ceph admin secret name"),
        (json!({"adminSecretName": "s"}), "missing Ceph monitors"),
        (json!({"adminSecretName": "s", "monitors": ""}), "missing Ceph monitors"),
    ];
    for (given, why) in table {
        assert_eq!(translated(&given), Err(why.to_owned()), "{given}");
    }
}

/// A PersistentVolume of an image that the plugin created.
fn volume(image: &str, annotations: &Value) -> Value {
    let rbd = json!({"monitors": ["10.70.53.126:6789"], "pool": "replicapool", "image": image});
    json!({"metadata": {"name": "pv", "annotations": annotations}, "spec": {"rbd": rbd}})
}

#[test]
fn images_of_the_plugin_are_identified_by_monitors_image_and_pool() {
    let uid = "e4111eb6-4088-11ec-b823-0242ac110003";
    let expected =
        format!("mig_mons-b7f67366bb43f32e07d8a261a7840da9_image-{uid}_7265706c696361706f6f6c");
    for (image, annotations) in [
        (format!("kubernetes-dynamic-pvc-{uid}"), json!({})),
        (uid.to_owned(), json!({VOLUME_HANDLE: ""})),
    ] {
        assert_eq!(handle(&PLUGIN, &volume(&image, &annotations)), Ok(expected.clone()));
    }
}

#[test]
fn the_longest_handle_that_is_saved_is_read_whole() {
    let long = "h".repeat(4096);
    assert_eq!(handle(&PLUGIN, &volume("i", &json!({VOLUME_HANDLE: long}))), Ok(long));
}

#[test]
fn a_new_volume_becomes_one_of_the_plugin() {
    let attributes = json!({"clusterID": "c", "imageFeatures": "layering", "imageFormat": "1",
                            "imageName": "kubernetes-dynamic-pvc-u", "pool": "replicapool"});
    let secret = json!({"name": "ceph-secret", "namespace": "default"});
    let given = json!({"volumeHandle": "dummy", "fsType": "ext4", "volumeAttributes": attributes,
                       "nodeStageSecretRef": secret});
    let made = in_tree(&PLUGIN, &given, &json!(null)).unwrap();
    assert_eq!(
        made["metadata"]["annotations"],
        json!({"clusterID": "c", "imageFeatures": "layering", "imageFormat": "1",
               "journalPool": "", VOLUME_HANDLE: "dummy"})
    );
    assert_eq!(
        made["spec"]["rbd"],
        json!({"monitors": [""], "image": "kubernetes-dynamic-pvc-u", "pool": "replicapool",
               "user": "admin", "fsType": "ext4", "secretRef": secret})
    );
    let user = json!({"volumeHandle": "h", "volumeAttributes": {"adminId": "kube"}});
    let made = in_tree(&PLUGIN, &user, &json!(null)).unwrap();
    assert_eq!(made["spec"]["rbd"]["user"], "kube");
    assert_eq!(csi(&PLUGIN, &made).unwrap().attributes[ADMIN_ID], "kube");
}
