use serde_json::{Value, json};

use super::*;
use crate::{
    csi::proto::{Topology, VolumeContentSource},
    csi_provisioner::{
        request::draft,
        testing::{map, refusal, request, settings},
    },
};

/// The PersistentVolume, as JSON, for a claim with this spec and the driver's response.
fn built(spec: &Value, answer: &Volume) -> Value {
    let (settings, request) = (settings(&[]), request(spec, &json!({})));
    let prepared = draft(&settings, &request, None).map_err(refusal).unwrap();
    serde_json::to_value(build(&settings, &request, &prepared, answer)).unwrap()
}

fn answer() -> Volume {
    Volume { volume_id: "handle".into(), ..Volume::default() }
}

/// Nothing is rounded: exact bytes, with binary suffixes if they fit.
#[test]
fn the_size_is_the_drivers_and_else_the_claims() {
    for (requested, answered, expected) in [
        ("1Gi", 0, "1Gi"),
        ("1G", 0, "1000000000"),
        ("1500M", 0, "1500000000"),
        ("1025", 0, "1025"),
        ("1000", 0, "1k"),
        ("100m", 0, "1"),
        ("1.5", 0, "2"),
        ("1Gi", 1 << 30, "1Gi"),
        ("1Gi", (1 << 30) + 1, "1073741825"),
        ("1Gi", 5 << 40, "5Ti"),
        ("1Gi", i64::MAX, "9223372036854775807"),
        ("16Ei", 0, "9223372036854775807"),
        // It overflows a request: no size is requested.
        ("20E", 0, "0"),
    ] {
        let spec = json!({"resources": {"requests": {"storage": requested}}});
        let volume = built(&spec, &Volume { capacity_bytes: answered, ..answer() });
        assert_eq!(volume["spec"]["capacity"]["storage"], expected, "{requested} {answered}");
    }
}

/// A driver without topology may return topology and a source that were not requested.
#[test]
fn unrequested_topology_and_source_are_ignored() {
    let answer = Volume {
        accessible_topology: vec![Topology { segments: map(&[("zone", "a")]) }],
        content_source: Some(VolumeContentSource::default()),
        ..answer()
    };
    assert_eq!(built(&json!({}), &answer), built(&json!({}), &self::answer()));
}
