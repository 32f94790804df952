#![no_main]

use csi_provisioner::controller::claims::fuzz::record;

libfuzzer_sys::fuzz_target!(|data: &[u8]| record(data));
