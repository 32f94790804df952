//! The driver's socket: the path that `--csi-address` names, and the transport to it, which simulations replace.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::{FutureExt as _, future::BoxFuture};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
};

/// A byte stream to the driver.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// Any byte stream to the driver.
pub type BoxedIo = Box<dyn Io>;

/// Opens a byte stream to the driver whose socket has this path.
pub type Connector = Arc<dyn Fn(&Path) -> BoxFuture<'static, io::Result<BoxedIo>> + Send + Sync>;

/// `--csi-address` is neither an absolute path nor a `unix://` URL; the text is external-provisioner's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("OnConnectionLoss callback only supported for unix:// addresses")]
pub struct NotUnix;

/// The path of the socket that `--csi-address` names, as an absolute path or a `unix://` URL.
///
/// # Errors
/// It is neither.
pub fn socket_path(address: &str) -> Result<PathBuf, NotUnix> {
    match address.strip_prefix("unix://") {
        Some(path) => Ok(path.into()),
        None if address.starts_with('/') => Ok(address.into()),
        None => Err(NotUnix),
    }
}

/// Connects to the unix socket at the path.
pub fn unix_connector() -> Connector {
    Arc::new(|path| {
        let path = path.to_owned();
        async move { Ok(Box::new(UnixStream::connect(path).await?) as BoxedIo) }.boxed()
    })
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
            assert_eq!(socket_path(text).ok(), path.map(PathBuf::from), "{text}");
        }
        assert_eq!(
            socket_path("x").unwrap_err().to_string(),
            "OnConnectionLoss callback only supported for unix:// addresses"
        );
    }
}
