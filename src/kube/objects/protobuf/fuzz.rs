//! The fuzz target for messages in protobuf.

use serde_json::Value;

use super::{CLAIM, Envelope, Fault, STATUS, VOLUME, kind_of, read, tables::Table};
use crate::kube::objects::{Claim, View, Volume};

/// The most bytes of JSON per byte of protobuf: the longest name of a field and its punctuation.
const GROWTH: usize = 64;

/// Checks that a message is presented as JSON of a limited size, that a view reads the same from that
/// JSON, and that unknown fields change nothing.
///
/// # Panics
/// If that does not hold.
pub fn protobuf(data: &[u8]) {
    let message = Envelope::of(data).map_or(data, |object| object.raw);
    reads_as_json::<Claim>(message, CLAIM);
    reads_as_json::<Volume>(message, VOLUME);
    let status: Result<Value, Fault> = read(message, STATUS);
    check_size(message, &status);
    if let Ok(kind) = kind_of(message) {
        assert!(kind.len() <= message.len());
    }
}

fn reads_as_json<V: View>(message: &[u8], table: Table) {
    let json: Result<Value, Fault> = read(message, table);
    check_size(message, &json);
    let view: Result<V, Fault> = read(message, table);
    if let (Ok(json), Ok(view)) = (&json, &view) {
        let of_json = serde_json::from_value::<V>(json.clone());
        let of_json = of_json.map(|view| format!("{view:?}"));
        assert_eq!(of_json.ok(), Some(format!("{view:?}")), "{json}");
    }
    if json.is_err() && view.is_ok() {
        return;
    }
    // Field 1000, a text, is in no table.
    let extended = [message, b"\xc2\x3e\x01x"].concat();
    let of_extended: Result<Value, Fault> = read(&extended, table);
    if let Ok(json) = json {
        assert_eq!(of_extended, Ok(json), "an unknown field changes the result");
    }
}

fn check_size(message: &[u8], json: &Result<Value, Fault>) {
    let size = json.as_ref().map_or(0, |json| json.to_string().len());
    assert!(size <= GROWTH * (message.len() + 1), "{size} bytes of {}", message.len());
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_message_reads_as_its_json_also_with_unknown_fields() {
        crate::fuzzing::run("protobuf", 600, super::protobuf);
    }
}
