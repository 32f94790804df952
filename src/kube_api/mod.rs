//! The API server's client.
pub mod quantity;
pub mod views;
