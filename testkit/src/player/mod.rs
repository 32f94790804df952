//! To be filled.
pub mod expand;
pub mod python;
pub mod scenario;
pub mod yaml;
