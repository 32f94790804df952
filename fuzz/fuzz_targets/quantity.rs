#![no_main]

use go_fmt::quantity::fuzz::quantity;

libfuzzer_sys::fuzz_target!(|data: &[u8]| quantity(data));
