use serde_json::json;
use tokio::time::Instant;

use super::*;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_claim_shows_what_it_waits_for_and_what_keeps_it() {
    let given: PersistentVolumeClaim = read(json!({
        "metadata": {
            "name": "c", "namespace": "ns", "finalizers": ["f", "g"],
            "annotations": {PROVISIONER: "d", SELECTED_NODE: "n"},
        },
        "status": {"phase": "Pending"},
    }));
    let shown = claim(&given, Fate::Present).to_string();
    assert_eq!(shown, "ns/c: Pending, for n, given to d, held by f g");
    assert_eq!(claim(&given, Fate::Gone).to_string(), "ns/c: gone");
}

#[test]
fn a_volume_shows_what_it_is_made_of_and_its_end() {
    let terms =
        json!([{"matchExpressions": [{"key": ZONE_KEY, "operator": "In", "values": ["z"]}]}]);
    let new = json!({
        "metadata": {"name": "pv", "finalizers": ["f"]},
        "spec": {
            "capacity": {"storage": "1Gi"}, "csi": {"driver": "d", "volumeHandle": "h"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    });
    assert_eq!(volume(&read(new.clone()), Fate::Present).to_string(), "pv: new, 1Gi at h, in z");
    let mut ending = new;
    ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    ending["status"] = json!({"phase": "Released"});
    let shown = volume(&read(ending), Fate::Present).to_string();
    assert_eq!(shown, "pv: Released, being deleted, held by f");
}

#[test]
fn a_call_shows_the_keys_of_its_secrets_and_never_their_content() {
    let request = json!({
        "name": "v", "capacity_range": {"required_bytes": "7"}, "parameters": {"p": "q"},
        "secrets": {"key": "hidden"},
    });
    let shown = call(&Record { method: "CreateVolume", request, at: Instant::now() });
    let expected = "CreateVolume: v, 7 bytes, parameters {\"p\":\"q\"}, with secret key";
    assert_eq!(shown.to_string(), expected);
    assert!(!format!("{shown:?}").contains("hidden"));
}
