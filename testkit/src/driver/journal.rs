//! The log of a driver's calls: JSON under the names of the `.proto` file, with 64-bit numbers as strings, enums by
//! name and unset fields left out, as Python's `MessageToDict(preserving_proto_field_name=True)` prints and the
//! recordings hold.

use std::{collections::BTreeMap, sync::LazyLock};

use parking_lot::Mutex;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::Value;
use tokio::{sync::watch, time::Instant};

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

impl Record {
    /// The call in a line, without the secrets it may hold.
    pub fn without_secrets(&self) -> String {
        let mut request = self.request.clone();
        if let Some(fields) = request.as_object_mut() {
            fields.remove("secrets");
        }
        format!("{} {request}", self.method)
    }
}

/// Every call a driver got, in the order they came.
#[derive(Debug, Default)]
pub struct Journal {
    calls: Mutex<Vec<Record>>,
    length: watch::Sender<usize>,
}

impl Journal {
    /// Writes a call down.
    pub(super) fn note<M: Message>(&self, method: &'static str, request: &M) {
        self.note_json(method, as_json(&format!("csi.v1.{method}Request"), request));
    }

    /// Writes a call down whose request is JSON already.
    pub(crate) fn note_json(&self, method: &'static str, request: Value) {
        let mut calls = self.calls.lock();
        calls.push(Record { method, request, at: Instant::now() });
        self.length.send_replace(calls.len());
    }

    /// All calls so far.
    pub fn calls(&self) -> Vec<Record> {
        self.calls.lock().clone()
    }

    /// The calls after the first `known`, as soon as there are some.
    pub async fn after(&self, known: usize) -> Vec<Record> {
        // The sender lives as long as the journal, so the wait cannot fail.
        let _ = self.length.subscribe().wait_for(|length| *length > known).await;
        self.calls.lock().iter().skip(known).cloned().collect()
    }

    /// How many calls `method` had.
    pub fn count(&self, method: &str) -> usize {
        self.calls.lock().iter().filter(|call| call.method == method).count()
    }

    /// How many calls each method had.
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for call in self.calls.lock().iter() {
            *counts.entry(call.method).or_default() += 1;
        }
        counts
    }

    /// How many calls `method` had for each value of a request parameter of that name or, where
    /// there is none, of the request's field. Without a `key` all count under `""`.
    pub fn counts_by(&self, method: &str, key: Option<&str>) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for call in self.calls.lock().iter().filter(|call| call.method == method) {
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
pub fn as_json<M: Message>(full_name: &str, message: &M) -> Value {
    let options = SerializeOptions::new().use_proto_field_name(true);
    DESCRIPTORS
        .get_message_by_name(full_name)
        .and_then(|kind| DynamicMessage::decode(kind, message.encode_to_vec().as_slice()).ok())
        .and_then(|dynamic| {
            dynamic.serialize_with_options(serde_json::value::Serializer, &options).ok()
        })
        .unwrap_or(Value::Null)
}
