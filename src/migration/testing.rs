//! Test helpers of this module: objects as the API server writes them.

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};

use super::{CsiVolume, Migration, Plugin};
use crate::kube::objects::{StorageClass, Volume};

/// A class of the plugin with these parameters and allowed topologies, translated to the driver's.
pub(super) fn class(
    plugin: &'static Plugin,
    parameters: &Value,
    topologies: &Value,
) -> Result<Value, String> {
    let class = json!({"provisioner": plugin.in_tree, "parameters": parameters,
                       "allowedTopologies": topologies, "mountOptions": ["noatime"]});
    let class: StorageClass = serde_json::from_value(class).unwrap();
    let translated = Migration(plugin).class_to_csi(&class).map_err(|why| why.to_string())?;
    assert_eq!(translated.mount_options, class.mount_options);
    let topologies = translated.allowed_topologies.iter().map(|term| {
        let expressions = term.match_label_expressions.iter();
        Value::Array(expressions.map(|it| json!([it.key, it.values])).collect())
    });
    Ok(
        json!({"parameters": translated.parameters, "topologies": Value::Array(topologies.collect())}),
    )
}

/// The parameters of such a class.
pub(super) fn parameters(plugin: &'static Plugin, parameters: &Value) -> Value {
    class(plugin, parameters, &json!([])).unwrap()["parameters"].clone()
}

/// One allowed topology of one key.
pub(super) fn allowed(key: &str, values: &[&str]) -> Value {
    json!([{"matchLabelExpressions": [{"key": key, "values": values}]}])
}

/// A term of a node affinity: keys with their values.
pub(super) type Term<'a> = &'a [(&'a str, &'a [&'a str])];

/// A required node affinity of these terms.
pub(super) fn affinity(terms: &[Term<'_>]) -> Value {
    let terms = terms.iter().map(|term| {
        let expressions = term
            .iter()
            .map(|(key, values)| json!({"key": key, "operator": "In", "values": values}));
        json!({"matchExpressions": Value::Array(expressions.collect())})
    });
    json!({"required": {"nodeSelectorTerms": Value::Array(terms.collect())}})
}

/// A PersistentVolume of the driver with this CSI source and affinity, translated to the plugin's.
pub(super) fn in_tree(
    plugin: &'static Plugin,
    csi: &Value,
    affinity: &Value,
) -> Result<Value, String> {
    let mut csi = csi.clone();
    csi["driver"] = json!(plugin.driver);
    let volume =
        json!({"metadata": {"name": "pv"}, "spec": {"csi": csi, "nodeAffinity": affinity}});
    let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
    let translated = Migration(plugin).to_in_tree(volume).map_err(|why| why.to_string())?;
    assert!(translated.spec.as_ref().unwrap().csi.is_none(), "a volume has one source");
    Ok(serde_json::to_value(translated).unwrap())
}

/// A PersistentVolume of the plugin, translated to CSI.
pub(super) fn csi(plugin: &'static Plugin, volume: &Value) -> Result<CsiVolume, String> {
    let volume: Volume = serde_json::from_value(volume.clone()).unwrap();
    let translated = Migration(plugin).to_csi(&volume).map_err(|why| why.to_string())?;
    assert_eq!(translated.source.driver, plugin.driver);
    Ok(translated)
}

/// The handle of such a volume.
pub(super) fn handle(plugin: &'static Plugin, volume: &Value) -> Result<String, String> {
    Ok(csi(plugin, volume)?.source.volume_handle)
}

/// The node affinity of a PersistentVolume of the plugin, in the driver's keys.
pub(super) fn affinity_of(plugin: &'static Plugin, volume: &Value) -> Value {
    serde_json::to_value(csi(plugin, volume).unwrap().node_affinity).unwrap()
}
