#![no_main]

use csi_provisioner::kube_api::reflector::fuzz::lists;

libfuzzer_sys::fuzz_target!(|data: &[u8]| lists(data));
