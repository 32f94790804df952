//! The API server's client.
//!
//! Owns everything between this program and the Kubernetes API: how it is found ([`config`]) and
//! reached ([`mod@transport`]), the lanes that keep kinds of traffic from starving one another
//! ([`Lanes`]) with the rules every request obeys (`layers`), single requests ([`Client`]) with
//! checked names ([`Name`]), those that many share ([`CoalescedReads`]), what it lets us do ([`access`]), edits that lose nothing ([`Client::edit`]), watches ([`informer`], whose
//! largest lists come in `protobuf`) and what is kept of what they show ([`cache`]), events ([`events`]) and quantities ([`quantity`]).
//!
//! Promises: no object's content is logged below `-v=8`, and no secret ever; whatever a server answers costs at most the
//! request; no write leaves on the lane `objects` while the gate is shut (safety rule 1); what is
//! written back never loses a field that this program does not know (safety rule 11). Leaves to
//! others what the objects mean.

pub mod client;
pub mod connection;
mod error;
pub mod events;
pub mod informer;
pub mod objects;
pub mod quantity;
mod scope;
mod stack;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use client::{
    BadName, Client, CoalescedReads, Edit, Edited, LaneSettings, Lanes, Name, Patch, RateLimit,
    Served, WriteBy, access, finalizers,
};
pub use connection::{
    BadProxy, ConfigError, ConfigSource, Proxies, Transport, config, credentials, transport,
    transport as connect,
};
pub use error::{ApiError, Refusal};
pub use informer::{
    Cache, Change, EventHandler, Extent, FirstList, Informer, InformerEvent, cache,
};
pub use objects::{Kind, View};
pub use scope::Scope;

#[cfg(any(test, feature = "fuzzing"))]
pub use self::{connection::proxy_fuzz, objects::protobuf::fuzz as protobuf_fuzz};
