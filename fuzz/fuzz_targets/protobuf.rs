#![no_main]

use csi_provisioner::kube_api::protobuf_fuzz::protobuf;

libfuzzer_sys::fuzz_target!(|data: &[u8]| protobuf(data));
