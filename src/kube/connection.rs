//! How the API server is found and reached.
//!
//! Owns the configuration ([`config`]), credentials ([`credentials`]), proxies, TLS and connections
//! ([`mod@transport`]). Leaves to `stack` what every request passes through, and to
//! [`client`](super::client) what a request is.

pub mod config;
pub mod credentials;
mod proxy;
pub mod transport;
pub(crate) mod url;

pub use config::{ConfigError, ConfigSource};
pub use proxy::{BadProxy, Proxies};
pub use transport::{Transport, transport};

#[cfg(any(test, feature = "fuzzing"))]
pub use proxy::fuzz as proxy_fuzz;
