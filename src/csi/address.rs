//! The address of the driver: `--csi-address`.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// The path of the driver's unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(PathBuf);

/// `--csi-address` is not a unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Neither an absolute path nor a `unix://` URL; the text is external-provisioner's.
    #[error("OnConnectionLoss callback only supported for unix:// addresses")]
    NotUnix,
}

impl Address {
    /// Parses an absolute path or a `unix://` URL.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        match text.strip_prefix("unix://") {
            Some(path) => Ok(Self(path.into())),
            None if text.starts_with('/') => Ok(Self(text.into())),
            None => Err(AddressError::NotUnix),
        }
    }

    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.0.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_unix_urls_are_addresses_and_nothing_else_is() {
        for (text, path) in [
            ("/run/csi/socket", Some("/run/csi/socket")),
            ("unix:///run/csi/socket", Some("/run/csi/socket")),
            ("unix://relative", Some("relative")),
            ("unix:/run/csi/socket", None),
            ("run/csi/socket", None),
            ("tcp://127.0.0.1:10000", None),
            ("", None),
        ] {
            assert_eq!(
                Address::parse(text).ok().as_ref().map(Address::path),
                path.map(Path::new),
                "{text}"
            );
        }
        assert_eq!(Address::parse("/s").unwrap().to_string(), "unix:///s");
        assert_eq!(
            Address::parse("x").unwrap_err().to_string(),
            "OnConnectionLoss callback only supported for unix:// addresses"
        );
    }
}
