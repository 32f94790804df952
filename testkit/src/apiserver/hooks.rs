//! What the server asks others: who may do what, what answers outside the table of kinds, who writes the audit.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};

use super::{
    ApiServer, Body, User, access::rbac::Rbac, request_info::RequestInfo, serve::AuditFile,
};

/// Answers what the table of kinds does not: discovery, versions, health, and resources or subresources that store
/// nothing.
pub trait Extension: Send + Sync {
    /// The answer to a request, or nothing when it is not this extension's.
    fn answer(
        &self,
        server: &ApiServer,
        user: &User,
        info: &RequestInfo,
        request: &Request<Bytes>,
    ) -> Option<Response<Body>>;
}

/// All hooks of a server; by default everybody may do everything.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Who may do what.
    pub authorizer: Option<Arc<Rbac>>,
    /// What answers outside the table of kinds; the first that does.
    pub extensions: Vec<Arc<dyn Extension>>,
    /// Where the audit is written.
    pub audit: Option<Arc<AuditFile>>,
}
