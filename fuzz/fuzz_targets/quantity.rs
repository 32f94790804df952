#![no_main]

use csi_provisioner::kube_api::quantity::fuzz::quantity;

libfuzzer_sys::fuzz_target!(|data: &[u8]| quantity(data));
