//! Messages with secrets, printed without them.
//!
//! `build.rs` lists the fields that the CSI spec marks `csi_secret`; here each message of that
//! list gets its `Debug`, in which those fields show as `***stripped***`.

use std::fmt;

use super::proto::{CreateVolumeRequest, DeleteVolumeRequest};

/// What stands in a secret's place, as csi-lib-utils' protosanitizer writes it.
const STRIPPED: &str = "***stripped***";

/// (message, field) of every field whose value must not be printed.
const SECRET_FIELDS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/secret_fields.rs"));

fn is_secret(message: &str, field: &str) -> bool {
    SECRET_FIELDS.contains(&(message, field))
}

/// Implements `Debug` for a message: field by field, secret ones stripped. A field that is left
/// out here does not compile, because the message is taken apart whole.
macro_rules! redacted_debug {
    ($message:ident, $full_name:literal, { $($field:ident),+ $(,)? }) => {
        impl fmt::Debug for $message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Self { $($field),+ } = self;
                let mut output = f.debug_struct(stringify!($message));
                $(if is_secret($full_name, stringify!($field)) {
                    output.field(stringify!($field), &STRIPPED);
                } else {
                    output.field(stringify!($field), $field);
                })+
                output.finish()
            }
        }
    };
}

redacted_debug!(CreateVolumeRequest, "csi.v1.CreateVolumeRequest", {
    name,
    capacity_range,
    volume_capabilities,
    parameters,
    secrets,
    volume_content_source,
    accessibility_requirements,
    mutable_parameters,
});

redacted_debug!(DeleteVolumeRequest, "csi.v1.DeleteVolumeRequest", { volume_id, secrets });
