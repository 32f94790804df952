//! Helpers of tests and of the fuzz target: objects as the API server writes them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // as tests do
#![cfg_attr(not(test), allow(dead_code))]

use k8s_openapi::{
    api::{core::v1::PersistentVolume, storage::v1::StorageClass},
    serde::Deserialize as _,
};
use serde_json::{Value, json};

use crate::{Class, CsiVolume, InTreeSource, Migration, Plugin, Untranslatable, Volume};

/// A PersistentVolume of the plugin as the API server writes it, translated to CSI.
pub(crate) fn to_csi(plugin: &'static Plugin, volume: &Value) -> Result<CsiVolume, Untranslatable> {
    let PersistentVolume { metadata, spec, .. } = PersistentVolume::deserialize(volume).unwrap();
    let spec = spec.unwrap_or_default();
    let claim = spec.claim_ref.as_ref();
    Migration(plugin).to_csi(&Volume {
        name: metadata.name.as_deref().unwrap_or_default(),
        labels: &metadata.labels.unwrap_or_default(),
        annotations: &metadata.annotations.unwrap_or_default(),
        claim_namespace: claim.and_then(|it| it.namespace.as_deref()).unwrap_or_default(),
        node_affinity: spec.node_affinity.as_ref(),
        in_tree: InTreeSource::of(&spec).as_ref(),
    })
}

/// A class, translated to the driver's.
pub(crate) fn translated(
    plugin: &'static Plugin,
    class: StorageClass,
) -> Result<StorageClass, Untranslatable> {
    let StorageClass { mut provisioner, parameters, allowed_topologies, .. } = class;
    let (mut parameters, mut topologies) =
        (parameters.unwrap_or_default(), allowed_topologies.unwrap_or_default());
    Migration(plugin).class_to_csi(Class {
        provisioner: &mut provisioner,
        parameters: &mut parameters,
        allowed_topologies: &mut topologies,
    })?;
    Ok(StorageClass {
        provisioner,
        parameters: Some(parameters),
        allowed_topologies: Some(topologies),
        ..StorageClass::default()
    })
}

/// A class of the plugin with these parameters and allowed topologies, translated to the driver's.
pub(crate) fn class(
    plugin: &'static Plugin,
    parameters: &Value,
    topologies: &Value,
) -> Result<Value, String> {
    let class = json!({"provisioner": plugin.in_tree, "parameters": parameters,
                       "allowedTopologies": topologies});
    let class: StorageClass = serde_json::from_value(class).unwrap();
    let translated = translated(plugin, class).map_err(|why| why.to_string())?;
    let topologies = translated.allowed_topologies.iter().flatten().map(|term| {
        let expressions = term.match_label_expressions.iter().flatten();
        Value::Array(expressions.map(|it| json!([it.key, it.values])).collect())
    });
    Ok(
        json!({"parameters": translated.parameters, "topologies": Value::Array(topologies.collect())}),
    )
}

/// One allowed topology of one key.
pub(crate) fn allowed(key: &str, values: &[&str]) -> Value {
    json!([{"matchLabelExpressions": [{"key": key, "values": values}]}])
}

/// A term of a node affinity: keys with their values.
pub(crate) type Term<'a> = &'a [(&'a str, &'a [&'a str])];

/// A required node affinity of these terms.
pub(crate) fn affinity(terms: &[Term<'_>]) -> Value {
    let terms = terms.iter().map(|term| {
        let expressions = term
            .iter()
            .map(|(key, values)| json!({"key": key, "operator": "In", "values": values}));
        json!({"matchExpressions": Value::Array(expressions.collect())})
    });
    json!({"required": {"nodeSelectorTerms": Value::Array(terms.collect())}})
}

/// A PersistentVolume of the driver with this CSI source and affinity, translated to the plugin's.
pub(crate) fn in_tree(
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

/// The same with the words of an error.
pub(crate) fn csi(plugin: &'static Plugin, volume: &Value) -> Result<CsiVolume, String> {
    to_csi(plugin, volume).map_err(|why| why.to_string())
}

/// The handle of such a volume.
pub(crate) fn handle(plugin: &'static Plugin, volume: &Value) -> Result<String, String> {
    Ok(csi(plugin, volume)?.handle)
}

/// The node affinity of a PersistentVolume of the plugin, in the driver's keys.
pub(crate) fn affinity_of(plugin: &'static Plugin, volume: &Value) -> Value {
    serde_json::to_value(csi(plugin, volume).unwrap().node_affinity).unwrap()
}
