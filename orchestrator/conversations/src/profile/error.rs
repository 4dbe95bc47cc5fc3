//! Errors of profiles.

use crate::host::HostError;
use crate::service::{ServiceError, ServiceErrorKind};

/// A setting that is not allowed. Never contains the value of a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvalidSetting {
    /// The field.
    pub field: &'static str,
    /// The problem, for the user.
    pub problem: String,
}

/// The error of an operation on a profile. Never contains the value of a secret.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The user has stored no settings.
    #[error("no settings are stored")]
    NoSettings,
    /// There is no secret of this name.
    #[error("there is no secret {0}")]
    UnknownSecret(String),
    /// There is a secret of this name already.
    #[error("the secret {0} exists already")]
    SecretExists(String),
    /// The request is not allowed.
    #[error(transparent)]
    Invalid(#[from] InvalidSetting),
    /// Other processes change the profile all the time. A retry may succeed.
    #[error("cannot change the settings: other processes are changing them")]
    Contended,
    /// The profile cannot be read or written.
    #[error("cannot access the stored settings")]
    Store(#[from] HostError),
}

impl InvalidSetting {
    /// Creates the error of a field.
    pub fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self {
            field,
            problem: problem.into(),
        }
    }
}

impl From<ProfileError> for ServiceError {
    fn from(error: ProfileError) -> Self {
        let kind = match &error {
            ProfileError::NoSettings | ProfileError::UnknownSecret(_) => ServiceErrorKind::NotFound,
            ProfileError::SecretExists(_) | ProfileError::Invalid(_) => ServiceErrorKind::Invalid,
            ProfileError::Contended => ServiceErrorKind::Conflict,
            ProfileError::Store(_) => ServiceErrorKind::Failed,
        };
        Self {
            kind,
            message: error.to_string(),
            source: Some(Box::new(error)),
        }
    }
}
