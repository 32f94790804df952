//! What is wrong with a kubeconfig or a credential plugin, told without what they hold.
//!
//! The libraries beneath show the text around a fault: a neighbouring line of a kubeconfig, all
//! that a plugin printed. Both may hold tokens, and what is told here stands in logs, in events and
//! in the termination message. Promises that a place, a name or an exit code is told instead, and
//! that no cause is kept which could still be printed.

use kube::{client::AuthError, config::KubeconfigError};
use tower::BoxError;

/// A fault, in words without anything of what it was found in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(String);

impl From<KubeconfigError> for Fault {
    fn from(error: KubeconfigError) -> Self {
        let KubeconfigError::Parse(error) = error else { return Self(error.to_string()) };
        let place =
            error.location().map(|at| format!(": line {} column {}", at.line(), at.column()));
        Self(format!("failed to parse kubeconfig YAML{}", place.unwrap_or_default()))
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
            // Says what was found in the plugin's answer.
            AuthError::AuthExec(_) => "the credential plugin cannot be used".to_owned(),
            error => error.to_string(),
        })
    }
}

/// The same error, unless it is one of credentials.
pub(crate) fn told(error: BoxError) -> BoxError {
    match error.downcast_ref::<AuthError>() {
        Some(fault) => Fault::from(fault).into(),
        None => error,
    }
}
