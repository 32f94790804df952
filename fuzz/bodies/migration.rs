//! The fuzz target for the translation between in-tree plugins and their drivers.

use std::collections::BTreeMap;

use k8s_openapi::api::{core::v1::PersistentVolume, storage::v1::StorageClass};
use serde_json::{Value, json};

use super::{
    InTreeSource, Migration, PLUGINS, Plugin, Untranslatable, aws_ebs, azure_file, gce_pd, rbd,
    testing::{to_csi, translated},
    vsphere,
};
use crate::fuzzing::{lines, text};

/// The longest handle that is accepted of a driver, in bytes.
const MAX_HANDLE: usize = 4 << 10;

/// Checks that a volume is translated completely or refused, that translating there and back keeps
/// its identity, that only its own plugin translates it, and that a class keeps parameters of
/// others.
///
/// # Panics
/// If that does not hold.
pub fn migration(data: &[u8]) {
    let text = text(data);
    let [handle, key, value, zone, secret] = lines(&text);
    // A longer one is refused before it is translated.
    if handle.len() > MAX_HANDLE {
        return;
    }
    for plugin in PLUGINS.into_iter().chain([&rbd::PLUGIN]) {
        check_class(plugin, key, value, zone);
        let csi = json!({
            "driver": plugin.driver, "volumeHandle": handle, "volumeAttributes": {key: value},
            "nodeStageSecretRef": {"name": secret, "namespace": "ns"},
        });
        let terms = json!([{"matchExpressions": [{"key": zone_key(plugin), "operator": "In", "values": [zone]}]}]);
        let affinity = json!({"required": {"nodeSelectorTerms": terms}});
        check_volume(plugin, &json!({"csi": csi, "nodeAffinity": affinity}), handle);
    }
    check_ebs(handle);
}

/// An EBS id is passed unchanged, or begins as EBS' ids and contains no path.
fn check_ebs(id: &str) {
    let volume = json!({"spec": {"awsElasticBlockStore": {"volumeID": id}}});
    if let Ok(csi) = to_csi(&aws_ebs::PLUGIN, &volume) {
        let handle = csi.handle;
        let is_own = handle.starts_with("vol-") && !handle.contains('/');
        assert!(if id.starts_with("aws://") { is_own } else { handle == id }, "{id:?}: {handle:?}");
    }
}

fn check_class(plugin: &'static Plugin, key: &str, value: &str, zone: &str) {
    let class = json!({
        "provisioner": plugin.in_tree,
        "parameters": {key: value, "zone": zone, "adminSecretName": "s", "monitors": "m"},
    });
    let Ok(class) = serde_json::from_value::<StorageClass>(class) else { return };
    let given = class.parameters.clone().unwrap_or_default();
    let Ok(translated) = translated(plugin, class) else { return };
    assert!([plugin.in_tree, plugin.driver].contains(&&*translated.provisioner), "{translated:?}");
    check_namespaces(&given, &translated.parameters.unwrap_or_default());
}

/// A secret's namespace is one that the class sets, or the plugin's default.
fn check_namespaces(given: &BTreeMap<String, String>, translated: &BTreeMap<String, String>) {
    let namespaces = translated.iter().filter(|(key, _)| key.ends_with("-secret-namespace"));
    for (key, namespace) in namespaces {
        let is_given = given.values().any(|value| value == namespace);
        assert!(is_given || namespace == "default", "{key}: {namespace}");
    }
}

fn check_volume(plugin: &'static Plugin, spec: &Value, handle: &str) {
    let volume = json!({"metadata": {"name": "pv"}, "spec": spec});
    let Ok(volume) = serde_json::from_value::<PersistentVolume>(volume) else { return };
    let Ok(in_tree) = Migration(plugin).to_in_tree(volume) else { return };
    let parts = in_tree.spec.iter().filter_map(InTreeSource::of).count();
    let is_csi = in_tree.spec.as_ref().is_some_and(|spec| spec.csi.is_some());
    assert!(parts == 1 && !is_csi, "{in_tree:?}");
    assert_eq!(in_tree.metadata.name.as_deref(), Some("pv"));
    // As the API server stores it and a watch delivers it.
    let stored = json!(in_tree);
    for other in PLUGINS.into_iter().chain([&rbd::PLUGIN]) {
        let back = to_csi(other, &stored);
        if other.driver != plugin.driver {
            assert_eq!(back, Err(Untranslatable::OtherPlugin(other.in_tree)));
        } else if let Ok(back) = back {
            check_handle(plugin, handle, &back.handle);
        }
    }
}

/// The driver's handle is restored, as far as the plugin's volumes contain it.
fn check_handle(plugin: &Plugin, handle: &str, back: &str) {
    let is = |other: &Plugin| plugin.driver == other.driver;
    if is(&gce_pd::PLUGIN) {
        let disk = handle.split('/').nth(5).unwrap_or_default();
        assert!(back.ends_with(&format!("/disks/{disk}")), "{handle:?} {back:?}");
    } else if is(&aws_ebs::PLUGIN) {
        assert!(back == handle || handle.starts_with("aws://"), "{handle:?} {back:?}");
    } else if is(&rbd::PLUGIN) {
        assert!(back == handle || handle.is_empty(), "{handle:?} {back:?}");
    } else if !is(&azure_file::PLUGIN) && !is(&vsphere::PLUGIN) {
        assert_eq!(back, handle);
    }
}

fn zone_key(plugin: &Plugin) -> &'static str {
    match plugin.driver {
        "ebs.csi.aws.com" => "topology.ebs.csi.aws.com/zone",
        "pd.csi.storage.gke.io" => "topology.gke.io/zone",
        "csi.vsphere.vmware.com" => "topology.csi.vmware.com/zone",
        _ => "topology.kubernetes.io/zone",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_volume_is_the_same_after_both_translations_or_is_refused() {
        crate::fuzzing::run("migration", 600, super::migration);
    }
}
