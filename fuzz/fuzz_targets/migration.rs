#![no_main]

use csi_provisioner::migration::fuzz::migration;

libfuzzer_sys::fuzz_target!(|data: &[u8]| migration(data));
