#![no_main]

use csi_translation::fuzz::migration;

libfuzzer_sys::fuzz_target!(|data: &[u8]| migration(data));
