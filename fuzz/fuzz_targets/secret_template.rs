#![no_main]

use csi_provisioner::csi_provisioner::secrets_fuzz::secret_template;

libfuzzer_sys::fuzz_target!(|data: &[u8]| secret_template(data));
