//! The CSI driver's client.
//!
//! Owns the connection to the driver's socket, who the driver is, the calls a provisioner makes
//! and what their ends mean. Promises that every call has a deadline, that no secret is printed,
//! that an error says whose word it is ([`Word`]: safety rule 2), that volumes are made and
//! removed only while the [`Gate`](crate::runtime::Gate) is open, and that a lost connection
//! heals by itself unless another driver answers. Leaves to others what to ask for and what an
//! answer leads to.
//!
//! A call's way down: [`Driver`] (which call) → `calls` (gate, deadline, log, metrics) → the
//! generated client → `wire` (notes what the driver itself said) → `link` (one HTTP/2
//! connection) → [`Connector`] (the socket).

mod address;
mod calls;
mod connector;
mod driver;
mod identity;
mod link;
pub mod proto;
mod redact;
mod status;
mod wire;

pub use self::{
    address::{Address, AddressError},
    calls::Migrates,
    connector::{BoxedIo, Connector, Io, unix_connector},
    driver::{
        CREATE_VOLUME, ConnectError, Connection, ConnectionEnded, DELETE_VOLUME, Driver,
        DriverSettings,
    },
    identity::{Capabilities, NodeInfo},
    status::{CallError, Code, Word, created_volume},
};

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
