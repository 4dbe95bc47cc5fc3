//! From whatever went wrong to the engine's error. The only place where a text becomes an error's detail, so that no
//! key gets into one.

use std::error::Error;

use engine::llm::{LlmError, LlmErrorKind};
use jiff::Timestamp;
use reqwest::header::HeaderMap;

use crate::classify::{Said, classify};
use crate::secrets::Secrets;

/// Why a request has no answer.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: LlmError,
    /// The optional parameter that the provider refuses by its name.
    pub(super) refused_parameter: Option<String>,
}

/// Makes failures of one endpoint.
#[derive(Debug)]
pub(super) struct Failures {
    secrets: Secrets,
}

impl Failures {
    pub(super) fn new(secrets: Secrets) -> Self {
        Self { secrets }
    }

    pub(super) fn of(&self, kind: LlmErrorKind, text: &str) -> Failure {
        let detail = self.secrets.detail(text);
        Failure { error: LlmError { kind, detail, retry_after: None }, refused_parameter: None }
    }

    /// The provider said no.
    pub(super) fn refused(&self, status: u16, headers: &HeaderMap, said: Said) -> Failure {
        let classified = classify(status, headers, said, Timestamp::now());
        let mut failure = self.of(classified.kind, &format!("status {status}: {}", classified.message));
        failure.error.retry_after = classified.retry_after;
        failure.refused_parameter = classified.refused_parameter;
        failure
    }

    /// No answer began.
    pub(super) fn unsent(&self, error: reqwest::Error) -> Failure {
        let kind = if error.is_builder() {
            LlmErrorKind::BadRequest
        } else if error.is_timeout() && !error.is_connect() {
            LlmErrorKind::Timeout
        } else {
            LlmErrorKind::Connection
        };
        self.of(kind, &chain(&error.without_url()))
    }

    /// An answer began and broke off.
    pub(super) fn cut(&self, error: reqwest::Error) -> Failure {
        self.of(LlmErrorKind::StreamCut, &chain(&error.without_url()))
    }
}

/// The error and its causes, in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
