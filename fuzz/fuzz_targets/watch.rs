#![no_main]

use csi_provisioner::kube::informer::watch_fuzz::watch;

libfuzzer_sys::fuzz_target!(|data: &[u8]| watch(data));
