//! Who sends a request, and what they may do: [`auth`] turns tokens into users, [`rbac`] decides by the roles
//! in the store, `reviews` answers what clients ask about rights.

pub mod auth;
pub mod rbac;
pub(super) mod reviews;
pub(super) mod token_request;

use serde_json::Value;

use crate::apiserver::serve::manifests;

/// The part of kube-apiserver's bootstrap policy that clients notice: everybody who is known may read what is
/// served, and ask what else they may do.
pub fn bootstrap() -> Result<Vec<Value>, crate::Error> {
    manifests::parse(include_str!("bootstrap.yaml"))
}
