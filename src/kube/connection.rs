//! Finds the API server and connects to it: configuration ([`config`]), errors of credentials
//! ([`credentials`]), proxies, TLS and connections ([`mod@transport`]).

pub mod config;
pub mod credentials;
mod proxy;
pub mod transport;
pub(crate) mod url;
mod user_agent;

pub use config::{ConfigError, ConfigSource};
pub use proxy::{BadProxy, Proxies};
pub use transport::{Transport, transport};

#[cfg(any(test, feature = "fuzzing"))]
pub use proxy::fuzz as proxy_fuzz;
