//! The API server's client.
pub mod views;
