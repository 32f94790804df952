//! Errors of kubeconfigs and credential plugins, without their content.
//!
//! kube's errors show text around the fault: a line of the kubeconfig, all output of a plugin. Both
//! may hold tokens, and errors are printed in logs, events and the termination message. A [`Fault`]
//! has a position, a name or an exit code instead, and no source that could print more.

use kube::{client::AuthError, config::KubeconfigError};
use tower::BoxError;

/// A description of a fault, without any content of the kubeconfig or the plugin's output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(String);

impl From<KubeconfigError> for Fault {
    fn from(error: KubeconfigError) -> Self {
        let KubeconfigError::Parse(error) = error else { return Self(error.to_string()) };
        let position =
            error.location().map(|at| format!(": line {} column {}", at.line(), at.column()));
        Self(format!("failed to parse kubeconfig YAML{}", position.unwrap_or_default()))
    }
}

impl From<kube::Error> for Fault {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Auth(error) => Self::from(&error),
            kube::Error::InferKubeconfig(error) => Self::from(error),
            error => Self(error.to_string()),
        }
    }
}

impl From<&AuthError> for Fault {
    fn from(error: &AuthError) -> Self {
        Self(match error {
            AuthError::AuthExecRun { cmd, out } => {
                format!(
                    "credential plugin {cmd} failed ({}); run it by hand to see why",
                    out.status
                )
            }
            AuthError::AuthExecParse(_) | AuthError::ParseTokenKey(_) => {
                "what the credential plugin printed is no ExecCredential; run it by hand to see"
                    .to_owned()
            }
            // Its text has parts of the plugin's output.
            AuthError::AuthExec(_) => "the credential plugin cannot be used".to_owned(),
            error => error.to_string(),
        })
    }
}

/// Replaces an error of credentials by a [`Fault`]; returns other errors unchanged.
pub(crate) fn redact(error: BoxError) -> BoxError {
    match error.downcast_ref::<AuthError>() {
        Some(fault) => Fault::from(fault).into(),
        None => error,
    }
}
