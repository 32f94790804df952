//! The fuzz target of messages in protobuf.

use serde_json::Value;

use super::{CLAIM, Fault, STATUS, VOLUME, kind_of, read, tables::Table, unwrapped};
use crate::kube::objects::{Claim, View, Volume};

/// So many bytes of JSON may come of one byte: the longest name of a field, and what is around it.
const GROWTH: usize = 64;

/// What protobuf shows is JSON of a bounded size; a view reads the same of both, and nothing of fields
/// that no table knows.
///
/// # Panics
/// Where that does not hold.
pub fn protobuf(data: &[u8]) {
    let message = unwrapped(data).unwrap_or(data);
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
    let longer = [message, b"\xc2\x3e\x01x"].concat();
    let of_longer: Result<Value, Fault> = read(&longer, table);
    if let Ok(json) = json {
        assert_eq!(of_longer, Ok(json), "a field of no table changes what is read");
    }
}

fn check_size(message: &[u8], json: &Result<Value, Fault>) {
    let size = json.as_ref().map_or(0, |json| json.to_string().len());
    assert!(size <= GROWTH * (message.len() + 1), "{size} bytes of {}", message.len());
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_message_reads_as_its_json_whatever_else_is_in_it() {
        crate::fuzzing::run("protobuf", 600, super::protobuf);
    }
}
