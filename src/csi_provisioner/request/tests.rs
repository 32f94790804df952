use serde_json::json;

use super::*;
use crate::csi_provisioner::testing::{refusal, request, settings};

/// A size that overflows is not requested; others are requested exactly, rounded up to bytes.
#[test]
fn sizes_are_asked_for_in_whole_bytes() {
    for (storage, bytes) in [
        (json!("1Gi"), 1 << 30),
        (json!("1.5Gi"), 1_610_612_736),
        (json!("1G"), 1_000_000_000),
        (json!("100m"), 1),
        (json!("1500m"), 2),
        (json!("1e3"), 1000),
        (json!("0"), 0),
        (json!("8Ei"), i64::MAX),
        (json!("16Ei"), i64::MAX),
        (json!("9E"), 9_000_000_000_000_000_000),
        (json!("20E"), 0),
        (json!("9.3E"), 0),
        (json!("9300P"), 0),
        (json!("1e19"), 0),
    ] {
        let request =
            request(&json!({"resources": {"requests": {"storage": storage}}}), &json!({}));
        let prepared = draft(&settings(&[]), &request, None).map_err(refusal).unwrap();
        let range = prepared.request.capacity_range.unwrap();
        assert_eq!((range.required_bytes, range.limit_bytes), (bytes, 0), "{storage}");
    }
    let none = request(&json!({"resources": {"limits": {"storage": "5Gi"}}}), &json!({}));
    let prepared = draft(&settings(&[]), &none, None).map_err(refusal).unwrap();
    assert_eq!(prepared.request.capacity_range.unwrap().required_bytes, 0);
    let odd = request(&json!({"resources": {"requests": {"storage": "1Xi"}}}), &json!({}));
    let observed_text = draft(&settings(&[]), &odd, None).map_err(refusal).unwrap_err();
    assert_eq!(
        observed_text,
        "the claim requests \"1Xi\" of storage, which is no quantity: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
}
