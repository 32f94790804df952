//! The CSI messages on the wire: what Google's protobuf wrote (`tests/fixtures/csi_wire`), the
//! generated code reads field for field, and writes byte for byte.
use std::{collections::BTreeMap, fmt::Debug};

use csi_provisioner::csi::proto::{
    CapacityRange, ControllerGetCapabilitiesResponse, ControllerServiceCapability,
    CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, GetCapacityRequest,
    GetCapacityResponse, GetPluginCapabilitiesResponse, GetPluginInfoResponse, NodeGetInfoResponse,
    PluginCapability, ProbeResponse, Topology, TopologyRequirement, Volume, VolumeCapability,
    VolumeContentSource, controller_service_capability, plugin_capability,
    volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
    volume_content_source::{self, SnapshotSource, VolumeSource},
};
use prost::Message;

/// The bytes of one case.
fn bytes(case: &str) -> Vec<u8> {
    let line = include_str!("../fixtures/csi_wire/messages.txt")
        .lines()
        .find_map(|line| line.strip_prefix(case)?.strip_prefix(' '))
        .unwrap_or_else(|| panic!("no case {case}"));
    (0..line.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&line[at..at + 2], 16).unwrap())
        .collect()
}

/// The case reads as `expected`, and `expected` is written as the case.
fn both_ways<M: Message + Default + PartialEq + Debug>(case: &str, expected: &M) {
    let bytes = bytes(case);
    assert_eq!(&M::decode(&*bytes).unwrap(), expected, "{case}");
    assert_eq!(expected.encode_to_vec(), bytes, "{case}");
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn topology(segments: &[(&str, &str)]) -> Topology {
    Topology { segments: map(segments) }
}

fn capability(access_type: AccessType, mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_type: Some(access_type),
        access_mode: Some(AccessMode { mode: mode as i32 }),
    }
}

fn mounted() -> VolumeCapability {
    let mount = MountVolume {
        fs_type: "ext4".into(),
        mount_flags: vec!["ro".into(), "noatime".into()],
        volume_mount_group: "1000".into(),
    };
    capability(AccessType::Mount(mount), Mode::SingleNodeMultiWriter)
}

#[test]
fn create_volume() {
    let far = topology(&[("topology/rack", "r"), ("zone", "z2")]);
    let snapshot = SnapshotSource { snapshot_id: "snap".into() };
    both_ways(
        "create_request",
        &CreateVolumeRequest {
            name: "pvc-\u{e9}".into(),
            capacity_range: Some(CapacityRange { required_bytes: 1 << 40, limit_bytes: i64::MAX }),
            volume_capabilities: vec![
                mounted(),
                capability(AccessType::Block(BlockVolume {}), Mode::MultiNodeMultiWriter),
            ],
            parameters: map(&[("a", "1"), ("b", "2"), ("csi.storage.k8s.io/pvc/name", "claim")]),
            secrets: map(&[("userID", "u"), ("userKey", "k")]),
            volume_content_source: Some(VolumeContentSource {
                r#type: Some(volume_content_source::Type::Snapshot(snapshot)),
            }),
            accessibility_requirements: Some(TopologyRequirement {
                requisite: vec![topology(&[("zone", "z1")]), far.clone()],
                preferred: vec![far],
            }),
            mutable_parameters: map(&[("iops", "3000")]),
        },
    );
    both_ways("create_request_empty", &CreateVolumeRequest::default());
}

#[test]
fn created_volume() {
    let source = VolumeSource { volume_id: "source".into() };
    let volume = Volume {
        capacity_bytes: -1,
        volume_id: "0001-0024".into(),
        volume_context: map(&[("pool", "p")]),
        content_source: Some(VolumeContentSource {
            r#type: Some(volume_content_source::Type::Volume(source)),
        }),
        accessible_topology: vec![topology(&[("zone", "z2")])],
    };
    both_ways("create_response", &CreateVolumeResponse { volume: Some(volume) });
}

#[test]
fn delete_volume() {
    let request = |secret: &str| DeleteVolumeRequest {
        volume_id: "v".into(),
        secrets: map(&[("k", secret)]),
    };
    both_ways("delete_request", &request("s"));
    // An empty value may be written or left out; it reads the same.
    assert_eq!(
        DeleteVolumeRequest::decode(&*bytes("delete_request_empty_secret")).unwrap(),
        request("")
    );
    assert_eq!(DeleteVolumeRequest::decode(&*request("").encode_to_vec()).unwrap(), request(""));
}

#[test]
fn capacity() {
    both_ways(
        "capacity_request",
        &GetCapacityRequest {
            volume_capabilities: vec![mounted()],
            parameters: map(&[("pool", "p")]),
            accessible_topology: Some(topology(&[("zone", "z1")])),
        },
    );
    // A size of zero is another answer than no size.
    let sizes = (Some(7), Some(0));
    both_ways(
        "capacity_response",
        &GetCapacityResponse {
            available_capacity: 5,
            maximum_volume_size: sizes.0,
            minimum_volume_size: sizes.1,
        },
    );
}

#[test]
fn who_the_driver_is() {
    both_ways(
        "plugin_info",
        &GetPluginInfoResponse {
            name: "d".into(),
            vendor_version: "1".into(),
            manifest: map(&[("x", "y")]),
        },
    );
    // Not ready is another answer than nothing.
    both_ways("probe_not_ready", &ProbeResponse { ready: Some(false) });
    both_ways(
        "node_info",
        &NodeGetInfoResponse {
            node_id: "n".into(),
            max_volumes_per_node: 9,
            accessible_topology: Some(topology(&[("zone", "z1")])),
        },
    );
}

#[test]
fn capabilities() {
    use plugin_capability::{Service, Type, VolumeExpansion};
    let services = (1..=4).map(|r#type| Some(Type::Service(Service { r#type })));
    let others = [Some(Type::VolumeExpansion(VolumeExpansion { r#type: 1 })), None];
    let capabilities = services.chain(others).map(|r#type| PluginCapability { r#type }).collect();
    both_ways("plugin_capabilities", &GetPluginCapabilitiesResponse { capabilities });

    let rpc = |r#type| {
        controller_service_capability::Type::Rpc(controller_service_capability::Rpc { r#type })
    };
    let capabilities =
        (0..16).map(|kind| ControllerServiceCapability { r#type: Some(rpc(kind)) }).collect();
    both_ways("controller_capabilities", &ControllerGetCapabilitiesResponse { capabilities });
}

#[test]
fn what_a_newer_driver_adds_is_skipped() {
    let response = CreateVolumeResponse::decode(&*bytes("newer_response")).unwrap();
    assert_eq!(response.volume.unwrap().volume_id, "v");
    let response = ControllerGetCapabilitiesResponse::decode(&*bytes("newer_capability")).unwrap();
    let Some(controller_service_capability::Type::Rpc(rpc)) = response.capabilities[0].r#type
    else {
        panic!()
    };
    assert_eq!(controller_service_capability::rpc::Type::try_from(rpc.r#type).ok(), None);
}
