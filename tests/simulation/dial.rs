//! How the program reaches a driver of a test: by a pipe in memory, in simulated time.

use std::{io, sync::Arc};

use csi_provisioner::csi::{BoxedIo, Connector};
use futures::FutureExt as _;
use testkit::driver::{Backend, Host};

/// Connects to `driver` whenever asked to.
pub(crate) fn dial<B: Backend>(driver: &Arc<Host<B>>) -> Connector {
    let driver = Arc::clone(driver);
    Arc::new(move |_| {
        let stream: io::Result<BoxedIo> = driver.connect().map(|it| Box::new(it) as BoxedIo);
        async move { stream }.boxed()
    })
}
