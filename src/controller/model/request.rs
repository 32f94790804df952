//! What the controller asks a provisioner for.

use std::{sync::Arc, time::Duration};

use super::{failure::Failure, source::Source, topology::Pinned};
use crate::kube::objects::{Claim, StorageClass};

/// A request to provision a volume for one claim.
#[derive(Debug, Clone)]
pub struct ProvisionRequest {
    /// The newest version of the claim.
    pub claim: Arc<Claim>,
    /// The storage class of the claim.
    pub class: Arc<StorageClass>,
    /// The name of the PersistentVolume, or why there is none. The provisioner reports that among its
    /// other checks.
    pub volume_name: Result<String, Failure>,
    /// The node that the scheduler chose, if it did.
    pub selected_node: Option<String>,
    /// Whether the claim is gone or being deleted. Then the call is made only to learn how an
    /// earlier one ended.
    pub withdrawn: bool,
    /// The source of the volume in the open call of this process. `None`: there is no open call, or
    /// the volume is made empty.
    pub source: Option<Source>,
    /// The requested topology: that of the open call if there is one, else none until
    /// [`Provisioner::prepare`](crate::controller::provisioner::Provisioner::prepare) sets it.
    pub topology: Option<Arc<Pinned>>,
}

impl ProvisionRequest {
    /// The name of the PersistentVolume; empty if there is none.
    pub fn name(&self) -> &str {
        self.volume_name.as_deref().unwrap_or_default()
    }
}

/// Whether this process provisions for a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShouldProvision {
    /// It does.
    Yes,
    /// Another process does, or the next event of the claim will show it.
    No,
    /// To be decided after this time, or when the claim changes.
    Later(Duration),
    /// Not for now, because something is missing: to be decided again with back-off.
    Unable,
    /// It cannot be decided.
    Failed(Failure),
}
