#![no_main]

use csi_provisioner::kube::protobuf_fuzz::protobuf;

libfuzzer_sys::fuzz_target!(|data: &[u8]| protobuf(data));
