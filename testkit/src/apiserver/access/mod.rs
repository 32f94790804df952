//! Who sends a request, and what they may do.
//!
//! [`auth`] turns tokens into users, [`rbac`] decides what the roles allow, [`bootstrap`] holds
//! those that every cluster has, and [`authorizer`] keeps all that in step with the store;
//! `reviews` and `token_request` answer what clients ask about themselves.

pub mod auth;
pub mod authorizer;
pub mod bootstrap;
pub mod rbac;
pub mod reviews;
pub(super) mod token_request;
