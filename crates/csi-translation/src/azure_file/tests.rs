use serde_json::{Value, json};

use super::*;
use crate::testing::{affinity, class, csi, handle, in_tree};

#[test]
fn classes_stay_as_they_are() {
    let zone = json!([{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["a"]}]}]);
    let given = json!({"skuName": "Standard_LRS", "fsType": "x", "zone": "a"});
    assert_eq!(
        class(&PLUGIN, &given, &zone),
        Ok(json!({"parameters": given, "topologies": [[["topology.kubernetes.io/zone", ["a"]]]]}))
    );
}

/// The source and the annotations of the plugin's PersistentVolume.
fn made(csi: &Value) -> (Value, Value) {
    let made = in_tree(&PLUGIN, csi, &json!(null)).unwrap();
    (made["spec"]["azureFile"].clone(), made["metadata"]["annotations"].clone())
}

#[test]
fn a_new_volume_becomes_one_of_the_plugin() {
    let id = "rg#st#pvc-file-dynamic#diskname.vhd";
    // From its id only.
    assert_eq!(
        made(&json!({"volumeHandle": id})),
        (
            json!({"shareName": "pvc-file-dynamic", "secretName": "azure-storage-account-st-secret",
                   "secretNamespace": "default"}),
            json!({RESOURCE_GROUP: "rg"})
        )
    );
    // From its attributes: then the id is ignored.
    let attributes = json!({"shareName": "share", "secretName": "s", "secretNamespace": "ns"});
    assert_eq!(
        made(&json!({"volumeHandle": "odd", "readOnly": true, "volumeAttributes": attributes})),
        (
            json!({"shareName": "share", "secretName": "s", "secretNamespace": "ns", "readOnly": true}),
            json!(null)
        )
    );
    // The staging secret takes precedence.
    let staging = json!({"name": "stage", "namespace": "vault"});
    assert_eq!(
        made(
            &json!({"volumeHandle": id, "volumeAttributes": attributes, "nodeStageSecretRef": staging})
        ),
        (
            json!({"shareName": "share", "secretName": "stage", "secretNamespace": "vault"}),
            json!(null)
        )
    );
    // Missing attributes are taken from the id; the file system is lost.
    assert_eq!(
        made(
            &json!({"volumeHandle": "#st#share", "fsType": "ext4", "volumeAttributes": {"secretname": "s"}})
        ),
        (
            json!({"shareName": "share", "secretName": "s", "secretNamespace": "default"}),
            json!(null)
        )
    );
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
fn ids_are_put_together() {
    let id = |annotations: Value, share: Value, claim: Value| {
        let metadata = json!({"name": "uuid", "annotations": annotations});
        handle(
            &PLUGIN,
            &json!({"metadata": metadata, "spec": {"azureFile": share, "claimRef": claim}}),
        )
    };
    let share = json!({"shareName": "share", "secretName": "azure-storage-account-st-secret"});
    let with = |key: &str, value: &str| {
        let mut share = share.clone();
        share[key] = json!(value);
        share
    };
    let claim = json!({"namespace": "sc", "name": "c"});
    let vault = || with("secretNamespace", "vault");
    let nowhere = "could not find a secret namespace in PersistentVolumeSource or ClaimRef";
    let table = [
        (json!({}), vault(), json!(null), Ok("#st#share#uuid#vault")),
        (json!({}), vault(), claim.clone(), Ok("#st#share#uuid#vault")),
        (json!({}), share.clone(), claim.clone(), Ok("#st#share#uuid#sc")),
        (json!({RESOURCE_GROUP: "rg"}), share.clone(), claim.clone(), Ok("rg#st#share#uuid#sc")),
        (json!({}), with("secretName", "own"), claim.clone(), Ok("#own#share#uuid#sc")),
        (json!({}), share.clone(), json!(null), Err(nowhere)),
        (json!({}), with("secretNamespace", ""), claim, Err(nowhere)),
    ];
    for (annotations, share, claim, expected) in table {
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(id(annotations, share.clone(), claim.clone()), expected, "{share} {claim}");
    }
}

#[test]
fn accounts_of_secrets() {
    let table = [
        ("azure-storage-account-accountname-secret", Some("accountname")),
        ("azure-storage-account-accountname-dup-secret", Some("accountname-dup")),
        ("xx-azure-storage-account-a-b-secret-yy", Some("a-b")),
        ("azure-storage-account-a-secret-secret", Some("a-secret")),
        ("azure-storage-account--secret", None),
        ("invalid", None),
        ("", None),
    ];
    for (secret, expected) in table {
        assert_eq!(account(secret), expected, "{secret}");
    }
}

#[test]
fn a_volume_of_the_plugin_is_one_of_the_driver() {
    let terms = affinity(&[&[("topology.kubernetes.io/zone", &["z"])]]);
    let share =
        json!({"shareName": "share", "secretName": "s", "secretNamespace": "ns", "readOnly": true});
    let volume =
        json!({"metadata": {"name": "pv"}, "spec": {"azureFile": share, "nodeAffinity": terms}});
    let translated = csi(&PLUGIN, &volume).unwrap();
    assert_eq!(
        serde_json::to_value(translated.source).unwrap(),
        json!({"driver": DRIVER, "volumeHandle": "#s#share#pv#ns", "readOnly": true,
               "volumeAttributes": {"sharename": "share"},
               "nodeStageSecretRef": {"name": "s", "namespace": "ns"}})
    );
    assert_eq!(serde_json::to_value(translated.node_affinity).unwrap(), terms, "as it is");
}
