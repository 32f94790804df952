//! The CSI messages on the wire: what Google's protobuf wrote (`tests/fixtures/csi_wire`), the generated code reads
//! under the same names, and writes byte for byte.

use csi_provisioner::csi::proto;
use prost::Message;
use serde_json::Value;
use testkit::driver::as_json;

/// The message as this code reads it: in JSON, and as it writes it.
fn read_as<M: Message + Default>(name: &str, bytes: &[u8]) -> (Value, Vec<u8>) {
    let message = M::decode(bytes).unwrap();
    (as_json(&format!("csi.v1.{name}"), &message), message.encode_to_vec())
}

fn read(name: &str, bytes: &[u8]) -> (Value, Vec<u8>) {
    let read = match name {
        "CreateVolumeRequest" => read_as::<proto::CreateVolumeRequest>,
        "CreateVolumeResponse" => read_as::<proto::CreateVolumeResponse>,
        "DeleteVolumeRequest" => read_as::<proto::DeleteVolumeRequest>,
        "GetCapacityRequest" => read_as::<proto::GetCapacityRequest>,
        "GetCapacityResponse" => read_as::<proto::GetCapacityResponse>,
        "GetPluginInfoResponse" => read_as::<proto::GetPluginInfoResponse>,
        "GetPluginCapabilitiesResponse" => read_as::<proto::GetPluginCapabilitiesResponse>,
        "ControllerGetCapabilitiesResponse" => read_as::<proto::ControllerGetCapabilitiesResponse>,
        "ProbeResponse" => read_as::<proto::ProbeResponse>,
        "NodeGetInfoResponse" => read_as::<proto::NodeGetInfoResponse>,
        _ => panic!("no message {name}"),
    };
    read(name, bytes)
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.trim_matches('-');
    let pairs = (0..digits.len()).step_by(2).map(|at| &digits[at..at + 2]);
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

#[test]
fn messages_are_read_and_written_as_googles_protobuf_does() {
    for line in include_str!("../fixtures/csi_wire/messages.txt").lines() {
        let [case, name, encoded, json] = line.splitn(4, ' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let bytes = bytes(encoded);
        let (read, written) = read(name, &bytes);
        assert_eq!(read, serde_json::from_str::<Value>(json).unwrap(), "{case}");
        assert!(written == bytes || case.starts_with("read_only_"), "{case}: {written:?}");
    }
}
