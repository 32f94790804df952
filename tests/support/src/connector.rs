//! Connects the program to a test driver: by a pipe in memory, in simulated time.

use std::{io, sync::Arc};

use csi_provisioner::csi::{BoxedIo, Connector};
use futures::FutureExt as _;
use testkit::driver::{Backend, Host};

/// A connector to `driver`, whatever socket is named.
pub fn connector<B: Backend>(driver: &Arc<Host<B>>) -> Connector {
    let driver = Arc::clone(driver);
    Arc::new(move |_| {
        let stream: io::Result<BoxedIo> = driver.connect().map(|it| Box::new(it) as BoxedIo);
        async move { stream }.boxed()
    })
}
