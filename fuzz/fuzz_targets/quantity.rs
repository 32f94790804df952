#![no_main]

use csi_provisioner::kube::quantity::fuzz::quantity;

libfuzzer_sys::fuzz_target!(|data: &[u8]| quantity(data));
