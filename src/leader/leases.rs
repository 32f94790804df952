//! Where Leases are kept: the election's only way out.

use std::future::Future;

use serde_json::Value;

/// Reads and writes one kind: Leases. PUTs carry the resourceVersion they are based on, and fail
/// where it is not the newest.
pub trait Leases: Send + Sync {
    /// GET.
    fn get(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Value, LeaseError>> + Send;

    /// POST.
    fn create(
        &self,
        namespace: &str,
        lease: &Value,
    ) -> impl Future<Output = Result<Value, LeaseError>> + Send;

    /// PUT.
    fn replace(
        &self,
        namespace: &str,
        name: &str,
        lease: &Value,
    ) -> impl Future<Output = Result<Value, LeaseError>> + Send;
}

/// A Lease could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// There is no such Lease.
    #[error("the Lease does not exist")]
    NotFound,
    /// Anything else. A write may have been done all the same.
    #[error("{0}")]
    Failed(String),
}
