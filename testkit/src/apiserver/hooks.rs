//! What the server asks others: who may do what, whose tokens there are, who writes the audit.

use std::sync::Arc;

use super::{
    access::{auth::Tokens, rbac::Rbac},
    serve::AuditFile,
};

/// All hooks of a server.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Who may do what, and what is answered who asks that; without it everybody may do everything, and nobody asks.
    pub authorizer: Option<Arc<Rbac>>,
    /// Where tokens made for service accounts become known; without it none are made.
    pub tokens: Option<Arc<Tokens>>,
    /// Where the audit is written.
    pub audit: Option<Arc<AuditFile>>,
}
