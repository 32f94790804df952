//! Why a run came to nothing.

use std::{io, path::PathBuf, process::ExitStatus};

use kube::config::KubeconfigError;

use super::progress::Milestone;
use crate::{
    apiserver::{serve::ServeError, status::Status},
    control_plane::StartError,
};

/// Why a run came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The temporary directory can't be made.
    #[error("can't make a temporary directory: {0}")]
    Directory(#[source] io::Error),
    /// The embedded server can't be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// etcd and kube-apiserver can't be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The audit log of the started server can't be read.
    #[error("can't read the API server's audit log: {0}")]
    AuditLog(#[source] io::Error),
    /// The embedded server refuses an object.
    #[error("the embedded API server refuses an object: {}", .0.message())]
    Refused(Status),
    /// The kubeconfig can't be used.
    #[error("can't use the kubeconfig: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    /// The API server answers with an error, or not at all.
    #[error("the API server does not do what it is asked: {0}")]
    Api(Box<kube::Error>),
    /// The namespace is not there.
    #[error("there is no namespace {0:?}: create it, so that it is clear that claims may go there")]
    NoNamespace(String),
    /// The class is not there.
    #[error("there is no StorageClass {0:?}")]
    NoClass(String),
    /// Claims of the class wait for pods.
    #[error("claims of the StorageClass {0:?} wait for pods: choose one that binds immediately")]
    ClassWaits(String),
    /// An object could not be made up, which is a bug.
    #[error("an object of the run has the wrong shape: {0}")]
    Object(#[from] serde_json::Error),
    /// The driver can't be served.
    #[error("can't serve the driver: {0}")]
    Driver(#[source] io::Error),
    /// The provisioner is not there.
    #[error(
        "there is no program {0}: build it (cargo build --release), or name another with --program"
    )]
    NoProgram(PathBuf),
    /// The provisioner can't be started.
    #[error("can't start {program}: {source}")]
    NotStarted {
        /// What should run.
        program: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The provisioner ended by itself.
    #[error("the provisioner ended ({status}); the end of its log:\n{log}")]
    Ended {
        /// How.
        status: ExitStatus,
        /// The last lines it wrote.
        log: String,
    },
    /// The provisioner can't be measured.
    #[error("can't read what the provisioner uses: {0}")]
    Usage(#[source] io::Error),
    /// Nothing comes any more.
    #[error(
        "given up after {seconds} s (--timeout): {done} of {all} claims are {milestone:?}{log}"
    )]
    Stalled {
        /// What was waited for.
        milestone: Milestone,
        /// How many have come so far.
        done: usize,
        /// How many were to come.
        all: usize,
        /// How long they had.
        seconds: u64,
        /// The last lines the provisioner wrote, where it is ours.
        log: String,
    },
    /// Signals can't be listened to.
    #[error("can't listen for signals: {0}")]
    Signals(#[source] io::Error),
    /// Somebody ended the run.
    #[error("interrupted")]
    Interrupted,
    /// Something could not be cleaned up.
    #[error(
        "{left} {kind} of the run do not go away; the names of its claims begin with {prefix:?}"
    )]
    LeftBehind {
        /// How many.
        left: usize,
        /// Of what kind.
        kind: &'static str,
        /// What the names of the claims begin with.
        prefix: String,
    },
}

impl LoadError {
    /// The process's exit code: 130 for an interrupted run, as shells have it, else 1.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Self::Interrupted) { 130 } else { 1 }
    }
}

impl From<kube::Error> for LoadError {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}
