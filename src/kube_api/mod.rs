//! The API server's client.
//!
//! Owns everything between this program and the Kubernetes API: how it is found ([`config`]) and
//! reached ([`mod@transport`]), the lanes that keep kinds of traffic from starving one another
//! ([`Lanes`]) with the rules every request obeys (`layers`), single requests ([`Client`]) with
//! checked names ([`Name`]), those that many share ([`Recent`]), what it lets us do ([`access`]), edits that lose nothing ([`Client::edit`]), watches ([`reflector`], whose
//! largest lists come in `protobuf`) and what is kept of what they show ([`cache`]), events ([`events`]) and quantities ([`quantity`]).
//!
//! Promises: no object's content is logged below `-v=8`, and no secret ever; whatever a server answers costs at most the
//! request; no write leaves on the lane `objects` while the gate is shut (safety rule 1); what is
//! written back never loses a field that this program does not know (safety rule 11). Leaves to
//! others what the objects mean.

pub mod access;
pub mod cache;
mod client;
pub mod config;
pub mod credentials;
mod discovery;
mod error;
pub mod events;
pub mod finalizers;
mod first_list;
mod follow;
mod kind;
mod lanes;
mod layers;
mod list;
mod name;
#[cfg(test)]
mod odd_names;
mod protobuf;
mod proxy;
pub mod quantity;
mod raw;
mod recent;
pub mod reflector;
mod scope;
mod stripped;
mod target;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod transport;
mod url;
pub mod views;

pub use cache::{Cache, Change};
pub use client::{Client, Patch};
pub use config::{ConfigError, ConfigSource};
pub use discovery::Served;
pub use error::{ApiError, Refusal};
pub use first_list::{Extent, FirstList};
pub use kind::Kind;
pub use lanes::{LaneSettings, Lanes, RateLimit};
pub use name::{BadName, Name};
pub use proxy::{BadProxy, Proxies};
pub use raw::{Edit, Edited, WriteBy};
pub use recent::Recent;
pub use reflector::{Observer, Reflector, Sighting};
pub use scope::Scope;
pub use transport::{Transport, transport};
pub use views::View;

#[cfg(any(test, feature = "fuzzing"))]
pub use self::{protobuf::fuzz as protobuf_fuzz, proxy::fuzz as proxy_fuzz};
