use super::*;

#[test]
fn a_status_of_a_later_version_can_be_read() {
    let read: Status = serde_json::from_str(r#"{"new": 1, "leader": {"leads": true}}"#).unwrap();
    assert!(read.leader.leads);
}

#[test]
fn queries() {
    for (text, claim, volume) in [
        ("", None, None),
        ("claim=shop/data", Some("shop/data"), None),
        ("claim=shop%2Fdata&x=y", Some("shop/data"), None),
        ("x&volume=pv-1", None, Some("pv-1")),
        ("claim=&volume", None, None),
    ] {
        let own = |text: Option<&str>| text.map(str::to_owned);
        assert_eq!(query(text), Query { claim: own(claim), volume: own(volume) }, "{text}");
    }
}
