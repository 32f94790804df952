#![no_main]

use csi_provisioner::kube::proxy_fuzz::no_proxy;

libfuzzer_sys::fuzz_target!(|data: &[u8]| no_proxy(data));
