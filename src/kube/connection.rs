//! Finds the API server and connects to it: configuration ([`config`]), errors of credentials
//! ([`credentials`]), TLS, proxies and connections (`connections`).

pub mod config;
mod connections;
pub mod credentials;
mod user_agent;

pub use config::{ConfigError, ConfigSource};
pub use connections::Connections;
