//! The API server's client.
//!
//! | module | content |
//! |---|---|
//! | [`connection`] | configuration, credentials, proxies, TLS, connections |
//! | [`layers`] | the tower layers that every request passes |
//! | [`client`] | [`Lanes`], requests ([`Client`]), [edits](Client::edit), [`CoalescedReads`], rights ([`access`]) |
//! | [`name`], `url`, `target` | checked names; URLs, and what they name |
//! | [`informer`] | lists and watches |
//! | [`objects`] | slim views of objects |
//! | [`events`] | recording of events |
//!
//! No object's content is logged. Whatever a server answers, only that request fails. The lanes `objects` and
//! `capacity` send no write while the gate is shut (safety rule 1). Writes keep fields that this program does not
//! know (safety rule 11).

pub mod client;
pub mod connection;
mod error;
pub mod events;
pub mod informer;
pub mod layers;
pub mod name;
pub mod objects;
mod scope;
mod target;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub(crate) mod url;

pub use client::{
    Client, CoalescedReads, Edit, Edited, EventLane, LaneSettings, Lanes, Patch, RateLimit, ReadBy,
    Served, WriteBy, access, finalizers,
};
pub use connection::{ConfigError, ConfigSource, Connections, config, credentials};
pub use error::ApiError;
pub use informer::{FirstList, Informer, InformerEvent, Listed, take_vanished};
pub use name::{BadName, Name};
pub use objects::{Kind, View};
pub use scope::Scope;
