#![no_main]

use csi_provisioner::csi_provisioner::fuzz::csi_answer;

libfuzzer_sys::fuzz_target!(|data: &[u8]| csi_answer(data));
