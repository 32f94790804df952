use serde_json::{Value, json};

use super::*;
use crate::testing::{affinity, affinity_of, class, in_tree};

#[test]
fn classes_and_affinities_stay_as_they_are() {
    let zone = json!([{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["a"]}]}]);
    let given = json!({"skuName": "Standard_LRS", "fsType": "x", "zone": "a"});
    assert_eq!(
        class(&PLUGIN, &given, &zone),
        Ok(json!({"parameters": given, "topologies": [[["topology.kubernetes.io/zone", ["a"]]]]}))
    );
    let terms = affinity(&[&[("topology.kubernetes.io/zone", &["z"])]]);
    let share = json!({"shareName": "share", "secretName": "s", "secretNamespace": "ns"});
    let volume = json!({"spec": {"azureFile": share, "nodeAffinity": terms}});
    assert_eq!(affinity_of(&PLUGIN, &volume), terms);
}

#[test]
fn a_new_volume_becomes_one_of_the_plugin() {
    let share = |name: &str, secret: &str, namespace: &str| json!({"shareName": name, "secretName": secret, "secretNamespace": namespace});
    let id = "rg#st#pvc-file-dynamic#diskname.vhd";
    let attributes = share("share", "s", "ns");
    let staging = json!({"name": "stage", "namespace": "vault"});
    let grouped = json!({RESOURCE_GROUP: "rg"});
    let account = "azure-storage-account-st-secret";
    let partial = json!({"secretname": "s"});
    let table = [
        // From the id alone.
        (json!({"volumeHandle": id}), share("pvc-file-dynamic", account, "default"), grouped),
        // From the attributes: then the id is ignored.
        (
            json!({"volumeHandle": "odd", "volumeAttributes": attributes}),
            attributes.clone(),
            Value::Null,
        ),
        // The staging secret takes precedence.
        (
            json!({"volumeHandle": id, "volumeAttributes": attributes, "nodeStageSecretRef": staging}),
            share("share", "stage", "vault"),
            Value::Null,
        ),
        // Missing attributes are taken from the id; the file system is lost.
        (
            json!({"volumeHandle": "#st#share", "fsType": "ext4", "volumeAttributes": partial}),
            share("share", "s", "default"),
            Value::Null,
        ),
    ];
    for (csi, share, annotations) in table {
        let made = in_tree(&PLUGIN, &csi, &json!(null)).unwrap();
        assert_eq!(made["spec"]["azureFile"], share, "{csi}");
        assert_eq!(made["metadata"]["annotations"], annotations, "{csi}");
    }
}

#[test]
fn an_incomplete_id_is_an_error() {
    for id in ["share", "rg#st", ""] {
        assert_eq!(
            in_tree(&PLUGIN, &json!({"volumeHandle": id}), &json!(null)),
            Err(format!("error parsing volume id: \"{id}\", should at least contain two #"))
        );
    }
}

#[test]
fn accounts_of_secrets() {
    let table = [
        ("azure-storage-account-accountname-dup-secret", Some("accountname-dup")),
        ("xx-azure-storage-account-a-b-secret-yy", Some("a-b")),
        ("azure-storage-account-a-secret-secret", Some("a-secret")),
        ("azure-storage-account--secret", None),
        ("invalid", None),
    ];
    for (secret, expected) in table {
        assert_eq!(account(secret), expected, "{secret}");
    }
}
