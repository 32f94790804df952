#![no_main]

use csi_provisioner::kube::informer::fuzz::lists;

libfuzzer_sys::fuzz_target!(|data: &[u8]| lists(data));
