#![no_main]

use csi_provisioner::logging::fuzz::log_line;

libfuzzer_sys::fuzz_target!(|data: &[u8]| log_line(data));
