//! What is held of the texts that users write, however they write them: live bytes beside the texts themselves.

use std::{collections::BTreeMap, fmt::Write as _, hint::black_box};

use csi_provisioner::{
    controller::model::{record::Record, unusable_volume::Credentials},
    kube::objects::{Claim, Secret},
};
use serde_json::{Value, json};

use crate::live;

const KIB: u64 = 1 << 10;

/// The bytes that a value holds.
fn held<T>(value: impl FnOnce() -> T) -> u64 {
    let before = live();
    let value = value();
    let held = live() - before;
    drop(black_box(value));
    held
}

/// The shortest different keys after a prefix, with empty values.
fn tiny(prefix: &str, count: usize) -> Value {
    (0..count).map(|number| (format!("{prefix}{number:x}"), Value::from(""))).collect()
}

fn claim(annotations: &Value) -> u64 {
    let text = json!({"metadata": {"annotations": annotations}}).to_string();
    held(|| serde_json::from_str::<Claim>(&text).unwrap())
}

fn record(topology: &Value) -> u64 {
    let text = json!({"driver": "d", "topology": topology}).to_string();
    assert!(text.len() <= 8 << 10, "{} bytes", text.len());
    held(|| Record::decode(&text).unwrap())
}

fn secret(data: &Value) -> u64 {
    let text = json!({"data": data}).to_string();
    held(|| serde_json::from_str::<Secret>(&text).unwrap())
}

fn copies_of_credentials() -> u64 {
    let value = |number: usize| (number.to_string(), "x".repeat(100));
    let credentials = Credentials::new((0..600).map(value).collect::<BTreeMap<_, _>>());
    held(|| vec![credentials.clone(); 10])
}

pub(crate) fn what_users_write_takes_little() {
    let known = tiny("volume.kubernetes.io/", 12_000);
    let both = [tiny("", 12_000), known.clone()]
        .into_iter()
        .filter_map(|map| map.as_object().cloned())
        .flatten();
    let measured = [
        ("a claim of tiny annotations", claim(&tiny("", 12_000)), 48),
        ("a claim of tiny known annotations", claim(&known), 48),
        ("a claim of both", claim(&both.collect()), 96),
        ("a record of empty terms", record(&json!({"terms": vec![json!({"": ""}); 1_010]})), 8),
        ("a record of many terms", record(&json!({"terms": vec![json!({"z": "a"}); 256]})), 168),
        ("a record of many keys", record(&json!({"terms": [tiny("", 900)]})), 8),
        ("a record of a place with many keys", record(&json!({"best": tiny("", 900)})), 8),
        ("a Secret of many keys", secret(&tiny("", 150_000)), 8),
        ("a Secret of one long value", secret(&json!({"a": "eHh4".repeat(300_000)})), 8),
        ("ten copies of credentials", copies_of_credentials(), 2),
    ];
    let mut table = String::new();
    for (name, bytes, at_most) in measured {
        writeln!(table, "{name:34} {bytes:8} bytes, at most {at_most} KiB").unwrap();
    }
    println!("{table}");
    for (name, bytes, at_most) in measured {
        assert!(bytes <= at_most * KIB, "{name}\n{table}");
    }
}
