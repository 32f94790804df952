//! The CSI driver's client.
//!
//! Owns the connection to the driver's socket, the driver's identity, and the calls of a
//! provisioner with their errors. Every call has a deadline. Secrets are never printed. An error
//! knows whether the driver sent it (safety rule 2). Volumes are created and deleted only
//! while the [`Gate`](crate::runtime::Gate) is open. A lost connection is re-established, unless
//! another driver answers. What to request, and what follows from a response, is decided elsewhere.
//!
//! The layers of a call: [`Driver`] (which call) → `calls` (log, metrics) → tonic's generated client
//! (encodes the messages) → `wire` (gate, deadline, the status that the driver itself sent;
//! `answer`: memory) → `link` (one HTTP/2 connection) → [`Connector`] (the socket).

mod answer;
mod calls;
mod connector;
mod driver;
mod identity;
mod last_calls;
mod link;
pub mod proto;
mod shown;
mod status;
mod wire;

pub use self::{
    calls::Migrates,
    connector::{BoxedIo, Connector, Io, NotUnix, socket_path, unix_connector},
    driver::{
        CREATE_VOLUME, ConnectError, Connection, ConnectionEnded, DELETE_VOLUME, Driver,
        DriverSettings,
    },
    identity::Capabilities,
    last_calls::{FailedCall, LastCalls},
    status::{CallError, Code, created_volume},
};

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
