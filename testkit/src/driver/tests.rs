//! Scripts that say what they do not mean.

use serde_json::json;

use super::Script;

#[test]
fn a_misspelt_script_is_refused() {
    for wrong in [
        json!({"create_volumes": []}),
        json!({"create_volume": [{"tmies": 1}]}),
        json!({"create_volume": [{"error": {"code": "Internal"}}]}),
        json!({"create_volume": [{"match": {"name": "("}}]}),
    ] {
        assert!(serde_json::from_value::<Script>(wrong.clone()).is_err(), "{wrong}");
    }
}
