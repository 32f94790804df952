#![no_main]

use csi_provisioner::kube::informer::fuzz::objects;

libfuzzer_sys::fuzz_target!(|data: &[u8]| objects(data));
