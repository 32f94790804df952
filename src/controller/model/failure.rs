//! Why something failed.

use std::fmt;

use crate::{controller::dependencies::Dependency, plain_text::cut};

/// A failure, with the message that the user reads in an event.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    message: String,
    /// Whether the failure says nothing about an earlier call, so that it never closes one (safety
    /// rule 3).
    pub is_inconclusive: bool,
    /// The name of the failure's kind; empty if it has none.
    pub kind: &'static str,
    /// Whether the failure ended the attempt, in the sense of external-provisioner.
    pub is_finished: bool,
    /// Whether another attempt fails in the same way until the claim, its class or a dependency
    /// changes.
    pub is_lasting: bool,
    /// What the message does not say, for whoever asks for an explanation.
    pub cause: Option<Box<str>>,
    /// The objects whose change may end the failure.
    pub dependencies: Vec<Dependency>,
}

/// The longest message that is kept, in bytes.
const MAX_MESSAGE: usize = 8 << 10;

/// Cuts a message that is too long.
fn bounded(message: String) -> String {
    if message.len() > MAX_MESSAGE { cut(&message, MAX_MESSAGE) } else { message }
}

impl Failure {
    /// A failure with this message.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: bounded(message.to_string()), ..Self::default() }
    }

    /// Puts `prefix` before the message.
    #[must_use]
    pub fn prefixed(self, prefix: &str) -> Self {
        Self { message: format!("{prefix}{}", self.message), ..self }
    }

    /// The failure says nothing about whether an earlier call has left a volume.
    #[must_use]
    pub fn inconclusive(self) -> Self {
        Self { is_inconclusive: true, ..self }
    }

    /// A change of these objects may end the failure: the attempt is repeated when one is seen.
    #[must_use]
    pub fn awaiting(self, dependencies: impl IntoIterator<Item = Dependency>) -> Self {
        Self { dependencies: dependencies.into_iter().collect(), ..self }
    }

    /// This object could not be read. If it `is_missing`, the failure lasts until the object
    /// exists.
    #[must_use]
    pub fn unread(self, object: Dependency, is_missing: bool) -> Self {
        if is_missing { self.awaiting([object]).lasting() } else { self.awaiting([object]) }
    }

    /// The failure is of the kind with this name.
    #[must_use]
    pub fn of_kind(self, kind: &'static str) -> Self {
        Self { kind, ..self }
    }

    /// The failure ends the attempt, in the sense of external-provisioner: the request is refused,
    /// not just impossible for now.
    #[must_use]
    pub fn finished(self) -> Self {
        Self { is_finished: true, ..self }
    }

    /// Only a change of the claim, of its class or of a dependency ends the failure.
    #[must_use]
    pub fn lasting(self) -> Self {
        Self { is_lasting: true, ..self }
    }

    /// What the message, which has external-provisioner's words, does not say.
    #[must_use]
    pub fn because(self, cause: impl fmt::Display) -> Self {
        Self { cause: Some(bounded(cause.to_string()).into()), ..self }
    }
}
