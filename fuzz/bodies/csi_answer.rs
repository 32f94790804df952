//! The fuzz target for drivers' CreateVolume responses.

use std::collections::BTreeSet;

use go_fmt::quantity::Quantity;
use k8s_openapi::api::core::v1::PersistentVolume;
use prost::Message as _;
use serde_json::{Value, json};

use super::{
    defects::{self, MAX_CONTEXT, MAX_ID, MAX_TOPOLOGY},
    persistent_volume,
    request::{Prepared, draft},
    samples::{DRIVER, request, settings, source},
};
use crate::{
    controller::model::unusable_volume::Credentials,
    csi::{
        created_volume,
        proto::{CreateVolumeResponse, Volume},
    },
};

/// Checks that every response ends as an open call, an unusable volume, or a PersistentVolume of
/// bounded size that matches the request.
///
/// # Panics
/// If that does not hold.
pub fn csi_answer(data: &[u8]) {
    let Ok(answer) = CreateVolumeResponse::decode(data) else { return };
    let volume = match created_volume(answer) {
        Ok(volume) => volume,
        Err(error) => return assert!(!error.is_final() && !error.is_unsent(), "{error}"),
    };
    assert!(!volume.volume_id.is_empty());
    let settings = settings();
    let request = request();
    let Ok(prepared) = draft(&settings, &request, None) else { return };
    let prepared = Prepared { has_topology: true, ..prepared };
    let copied = Prepared { source: Some(source()), ..prepared.clone() };
    for prepared in [prepared, copied] {
        if let Some(defect) = defects::find(&prepared, &volume) {
            let handle = settings.volume_handle(volume.volume_id.clone());
            let unusable = defect.unusable_volume("pvc-u", handle, Credentials::default());
            assert_eq!(unusable.handle.id(), volume.volume_id);
            assert!(unusable.orphaned.to_string().len() < 512, "{}", unusable.orphaned);
        } else {
            let made = persistent_volume::build(&settings, &request, &prepared, &volume);
            check(&prepared, &volume, &made);
        }
    }
}

fn check(prepared: &Prepared, volume: &Volume, made: &PersistentVolume) {
    assert!(prepared.source.is_none() || volume.content_source.is_some(), "an empty copy");
    let json = json!(made);
    let at = |pointer| json.pointer(pointer).unwrap_or(&Value::Null);
    assert_eq!(at("/metadata/name"), "pvc-u");
    assert!(at("/metadata/finalizers").is_null(), "{json}");
    let spec = at("/spec");
    let members: BTreeSet<_> =
        spec.as_object().into_iter().flatten().map(|(name, _)| &**name).collect();
    let known = [
        "accessModes",
        "capacity",
        "csi",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "volumeMode",
    ];
    assert!(members.iter().all(|name| known.contains(name)), "{members:?}");
    assert_eq!(spec["persistentVolumeReclaimPolicy"], "Retain");
    let csi = &spec["csi"];
    assert_eq!(csi["driver"], DRIVER);
    assert_eq!(csi["volumeHandle"], *volume.volume_id);
    assert!(
        csi.as_object().is_some_and(|csi| !csi.keys().any(|key| key.contains("ecret"))),
        "{csi}"
    );
    let size = at("/spec/capacity/storage").as_str().and_then(|size| Quantity::parse(size).ok());
    assert!(size.is_some_and(|size| size >= prepared.size), "{spec}");
    let most = MAX_ID + MAX_CONTEXT + MAX_TOPOLOGY + 4096;
    assert!(texts(&json) <= most, "{} bytes", texts(&json));
}

/// The bytes of all texts in an object.
fn texts(json: &Value) -> usize {
    match json {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(texts).sum(),
        Value::Object(members) => members.iter().map(|(key, value)| key.len() + texts(value)).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_answer_is_an_open_call_a_defect_or_the_volume_that_was_asked_for() {
        crate::fuzzing::run("csi_answer", 1500, super::csi_answer);
    }
}
