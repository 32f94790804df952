//! The log of a driver's calls.
//!
//! Owns how a request is written down: as JSON under the names of the `.proto` file, with 64-bit
//! numbers as strings, enums by name and unset fields left out, which is what Python's
//! `MessageToDict(preserving_proto_field_name=True)` prints and the recorded scenarios hold.

use std::{collections::BTreeMap, sync::LazyLock};

use parking_lot::Mutex;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::Value;
use tokio::time::Instant;

static DESCRIPTORS: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let bytes: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/csi_descriptors.bin"));
    // An empty pool shows in every record (`Value::Null`), so a broken build cannot pass unseen.
    DescriptorPool::decode(bytes).unwrap_or_default()
});

/// One call as it came in.
#[derive(Debug, Clone)]
pub struct Record {
    /// The method's bare name, such as `CreateVolume`.
    pub method: &'static str,
    /// The request. It holds the secrets as they were sent.
    pub request: Value,
    /// When it came.
    pub at: Instant,
}

/// Every call a driver got, in the order they came.
#[derive(Debug, Default)]
pub struct Journal(Mutex<Vec<Record>>);

impl Journal {
    /// Writes a call down.
    pub(super) fn note<M: Message>(&self, method: &'static str, request: &M) {
        let request = as_json(&format!("csi.v1.{method}Request"), request);
        self.0.lock().push(Record { method, request, at: Instant::now() });
    }

    /// All calls so far.
    pub fn calls(&self) -> Vec<Record> {
        self.0.lock().clone()
    }

    /// How many calls `method` had.
    pub fn count(&self, method: &str) -> usize {
        self.0.lock().iter().filter(|call| call.method == method).count()
    }

    /// How many calls each method had.
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for call in self.0.lock().iter() {
            *counts.entry(call.method).or_default() += 1;
        }
        counts
    }

    /// How many calls `method` had for each value of a request parameter of that name or, where
    /// there is none, of the request's field. Without a `key` all count under `""`.
    pub fn counts_by(&self, method: &str, key: Option<&str>) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for call in self.0.lock().iter().filter(|call| call.method == method) {
            let value = key.map_or_else(String::new, |key| field(&call.request, key));
            *counts.entry(value).or_default() += 1;
        }
        counts
    }
}

/// A request's parameter or, failing that, field of that name as text; `""` when it has neither.
fn field(request: &Value, key: &str) -> String {
    match request.get("parameters").and_then(|p| p.get(key)).or_else(|| request.get(key)) {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// `message` as JSON; `Null` where the descriptors do not know it.
pub(super) fn as_json<M: Message>(full_name: &str, message: &M) -> Value {
    let options = SerializeOptions::new().use_proto_field_name(true);
    DESCRIPTORS
        .get_message_by_name(full_name)
        .and_then(|kind| DynamicMessage::decode(kind, message.encode_to_vec().as_slice()).ok())
        .and_then(|dynamic| {
            dynamic.serialize_with_options(serde_json::value::Serializer, &options).ok()
        })
        .unwrap_or(Value::Null)
}
