//! `Debug` for messages with secrets, without their values.
//!
//! `build.rs` lists the fields that the CSI spec marks `csi_secret`. Each message of that list gets
//! its `Debug` here, which prints those fields as `***stripped***`.

use std::fmt;

use super::proto::{CreateVolumeRequest, DeleteVolumeRequest};

/// Replaces a secret, as in csi-lib-utils' protosanitizer.
const STRIPPED: &str = "***stripped***";

/// (message, field) of every field whose value must not be printed.
const SECRET_FIELDS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/secret_fields.rs"));

fn is_secret(message: &str, field: &str) -> bool {
    SECRET_FIELDS.contains(&(message, field))
}

/// Implements `Debug` for a message field by field, with secret fields stripped. Omitting a field
/// does not compile, because the message is destructured completely.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The message printed, with `hush` in its secrets.
    fn printed(message: &str) -> String {
        let secrets = BTreeMap::from([("user".to_owned(), "hush".to_owned())]);
        match message {
            "csi.v1.CreateVolumeRequest" => {
                format!(
                    "{:?}",
                    CreateVolumeRequest { name: "shown".into(), secrets, ..Default::default() }
                )
            }
            "csi.v1.DeleteVolumeRequest" => {
                format!("{:?}", DeleteVolumeRequest { volume_id: "shown".into(), secrets })
            }
            other => panic!(
                "{other} has secrets: give it a Debug in redact.rs, keep build.rs from deriving one, and add it here"
            ),
        }
    }

    #[test]
    fn no_secret_is_printed_and_all_else_is() {
        assert!(!SECRET_FIELDS.is_empty());
        for (message, field) in SECRET_FIELDS {
            let text = printed(message);
            assert!(text.contains(&format!("{field}: \"***stripped***\"")), "{text}");
            assert!(!text.contains("hush") && !text.contains("user"), "{text}");
            assert!(text.contains("shown"), "{text}");
        }
    }
}
