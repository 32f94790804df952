//! The transport to the driver, which simulations replace.

use std::{io, sync::Arc};

use futures::{FutureExt as _, future::BoxFuture};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
};

use super::Address;

/// A byte stream to the driver.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// Any byte stream to the driver.
pub type BoxedIo = Box<dyn Io>;

/// Opens a byte stream to the driver at an address.
pub type Connector = Arc<dyn Fn(&Address) -> BoxFuture<'static, io::Result<BoxedIo>> + Send + Sync>;

/// Connects to the unix socket at the address.
pub fn unix_connector() -> Connector {
    Arc::new(|address| {
        let path = address.path().to_owned();
        async move { Ok(Box::new(UnixStream::connect(path).await?) as BoxedIo) }.boxed()
    })
}
