//! Messages as JSON for log lines, without secrets and without what is not set, as csi-lib-utils'
//! protosanitizer prints them.
//!
//! `build.rs` derives `Serialize` for all messages, by [`stripped`] for the fields that the CSI spec marks
//! `csi_secret`, and by name for enumerations.

use std::fmt;

use serde::{Serialize, Serializer};

use super::proto::{
    CreateVolumeRequest, DeleteVolumeRequest, controller_service_capability, plugin_capability,
    volume_capability,
};

/// Prints a message.
pub(super) struct Shown<'a, M>(pub(super) &'a M);

impl<M: Serialize> fmt::Display for Shown<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self.0).map_err(|_| fmt::Error)?)
    }
}

/// Whether a field has the default of its type, which is how an unset one looks.
pub(super) fn is_unset<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// In place of a secret.
#[allow(clippy::trivially_copy_pass_by_ref)] // serde's form
pub(super) fn stripped<T, S: Serializer>(_: &T, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str("***stripped***")
}

/// Serializes numbers of an enumeration by their names.
macro_rules! names {
    ($($function:ident: $enumeration:ty,)+) => {
        $(#[allow(clippy::trivially_copy_pass_by_ref)] // serde's form
        pub(super) fn $function<S: Serializer>(number: &i32, to: S) -> Result<S::Ok, S::Error> {
            match <$enumeration>::try_from(*number) {
                Ok(known) => to.serialize_str(known.as_str_name()),
                Err(_) => to.serialize_i32(*number),
            }
        })+
    };
}

names! {
    access_mode: volume_capability::access_mode::Mode,
    service: plugin_capability::service::Type,
    rpc: controller_service_capability::rpc::Type,
}

/// Messages with secrets have no other `Debug`.
macro_rules! debug_as_shown {
    ($($message:ident),+) => {
        $(impl fmt::Debug for $message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} {}", stringify!($message), Shown(self))
            }
        })+
    };
}

debug_as_shown!(CreateVolumeRequest, DeleteVolumeRequest);
