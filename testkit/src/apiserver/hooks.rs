//! What the server asks others.
//!
//! Owns the seams: who may do what, what answers outside the table of kinds, who reads the audit.
//! Each has a default that does nothing.

use std::{fmt, sync::Arc};

use super::{ApiServer, Body, User, audit::Recorded, request_info::RequestInfo};
use bytes::Bytes;
use http::{Request, Response};

/// A request was refused by the authorizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// What stands behind `is forbidden:` in the answer.
    pub message: String,
}

/// Says who may do what.
pub trait Authorizer: Send + Sync {
    /// Asked before each request but the anonymous paths; `server` is for reading roles.
    fn authorize(
        &self,
        server: &ApiServer,
        user: &User,
        request: &RequestInfo,
    ) -> Result<(), Denied>;
}

/// Everybody may do everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllowAll;

impl Authorizer for AllowAll {
    fn authorize(
        &self,
        _server: &ApiServer,
        _user: &User,
        _request: &RequestInfo,
    ) -> Result<(), Denied> {
        Ok(())
    }
}

/// Answers what the table of kinds does not: discovery, versions, health, and resources or
/// subresources that store nothing.
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

/// Reads the audit as it is written.
pub trait AuditSink: fmt::Debug + Send + Sync {
    /// Called for each request once its answer is known.
    fn record(&self, recorded: &Recorded);
}

/// All hooks of a server.
#[derive(Clone)]
pub struct Hooks {
    /// Who may do what.
    pub authorizer: Arc<dyn Authorizer>,
    /// What answers outside the table of kinds; the first that does.
    pub extensions: Vec<Arc<dyn Extension>>,
    /// Who reads the audit.
    pub audit: Vec<Arc<dyn AuditSink>>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self { authorizer: Arc::new(AllowAll), extensions: Vec::new(), audit: Vec::new() }
    }
}
