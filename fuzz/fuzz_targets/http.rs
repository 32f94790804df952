#![no_main]

use csi_provisioner::http::fuzz::http;

libfuzzer_sys::fuzz_target!(|data: &[u8]| http(data));
