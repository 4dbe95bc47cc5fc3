//! From whatever went wrong to the engine's error. The only place where a text becomes an error's detail, so that no
//! key gets into one.

use std::error::Error;

use engine::llm::{LlmError, LlmErrorKind};
use jiff::Timestamp;
use reqwest::header::HeaderMap;

use crate::classify::{Said, classify};
use crate::secrets::Secrets;
use crate::wire::endpoint::Endpoint;

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: LlmError,
    /// The optional parameter that the provider refuses by its name.
    pub(crate) refused_parameter: Option<String>,
}

/// Makes failures of one endpoint.
#[derive(Debug)]
pub(crate) struct Failures {
    secrets: Secrets,
    /// Host and port, for people who wonder where it went; nothing else of the URL, which may hold keys.
    address: String,
}

impl Failures {
    pub(crate) fn new(endpoint: &Endpoint) -> Self {
        Self { secrets: endpoint.secrets.clone(), address: endpoint.address() }
    }

    pub(crate) fn of(&self, kind: LlmErrorKind, text: &str) -> Failure {
        let detail = self.secrets.detail(text);
        Failure { error: LlmError { kind, detail, retry_after: None }, refused_parameter: None }
    }

    /// The provider said no.
    pub(crate) fn refused(&self, status: u16, headers: &HeaderMap, said: Said) -> Failure {
        let classified = classify(status, headers, said, Timestamp::now());
        let mut failure = self.of(classified.kind, &format!("status {status}: {}", classified.message));
        failure.error.retry_after = classified.retry_after;
        failure.refused_parameter = classified.refused_parameter;
        failure
    }

    /// No answer began.
    pub(crate) fn unsent(&self, error: reqwest::Error) -> Failure {
        let kind = if error.is_builder() {
            LlmErrorKind::BadRequest
        } else if error.is_timeout() && !error.is_connect() {
            LlmErrorKind::Timeout
        } else {
            LlmErrorKind::Connection
        };
        self.of(kind, &format!("{}: {}", self.address, root(&error.without_url())))
    }

    /// An answer began and broke off.
    pub(crate) fn cut(&self, error: reqwest::Error) -> Failure {
        self.of(LlmErrorKind::StreamCut, &root(&error.without_url()))
    }
}

/// What began it: the errors around it only say that there was one.
fn root(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    error.to_string()
}
