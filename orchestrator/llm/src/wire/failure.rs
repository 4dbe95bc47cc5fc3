//! Converts failures of a request to the engine's errors. Only this module creates an error's
//! detail, so that each one is redacted.

use std::error::Error;

use engine::llm::{LlmError, LlmErrorKind};
use jiff::Timestamp;
use reqwest::header::HeaderMap;

use crate::classify::{ErrorBody, classify};
use crate::connection_guard::ConnectionGuard;
use crate::history::HistoryRefusal;
use crate::secrets::Secrets;
use crate::wire::endpoint::Endpoint;

/// What the user can do if no key is set.
const SET_KEY: &str =
    "give one as LLM_API_KEY, as api_key under [llm], or in the settings of the server";

/// The failure of a request.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: LlmError,
    /// The name of the optional parameter that the provider refuses.
    pub(crate) refused_parameter: Option<String>,
    /// Why the provider refuses the history.
    pub(crate) refused_history: Option<HistoryRefusal>,
    /// Whether the provider requires the Responses API.
    pub(crate) requires_responses: bool,
}

/// Creates the failures of one endpoint.
#[derive(Debug)]
pub(crate) struct Failures {
    secrets: Secrets,
    /// Host and port. The rest of the URL may hold keys.
    address: String,
    /// URL without what may be a key.
    public_url: String,
    /// Whether requests have a key, or a header that may hold one.
    has_credentials: bool,
    guard: Option<ConnectionGuard>,
}

impl Failures {
    pub(crate) fn new(endpoint: &Endpoint, guard: Option<ConnectionGuard>) -> Self {
        Self {
            secrets: endpoint.secrets.clone(),
            address: endpoint.address(),
            public_url: endpoint.public_url(),
            has_credentials: endpoint.has_credentials(),
            guard,
        }
    }

    /// Creates the failures of another endpoint of the same host.
    pub(crate) fn with_endpoint(&self, endpoint: &Endpoint) -> Self {
        Self::new(endpoint, self.guard.clone())
    }

    pub(crate) fn new_failure(&self, kind: LlmErrorKind, text: &str) -> Failure {
        let detail = self.secrets.detail(text);
        Failure {
            error: LlmError {
                kind,
                detail,
                retry_after: None,
            },
            refused_parameter: None,
            refused_history: None,
            requires_responses: false,
        }
    }

    /// Creates the failure of a server that has no such API, with the next step.
    pub(crate) fn wrong_address(&self, status: u16, message: &str) -> Failure {
        let url = &self.public_url;
        let hint = if url.contains("/v1/") {
            "check base_url"
        } else {
            "does base_url lack /v1?"
        };
        let message = if message.is_empty() {
            "an empty page"
        } else {
            message
        };
        self.new_failure(
            LlmErrorKind::WrongAddress,
            &format!("{url}: status {status}, {message}; {hint}"),
        )
    }

    /// Converts an error response.
    pub(crate) fn classify_error_response(
        &self,
        status: u16,
        headers: &HeaderMap,
        body: ErrorBody,
    ) -> Failure {
        let classified = classify(status, headers, body, Timestamp::now());
        let mut failure = match classified.kind {
            LlmErrorKind::WrongAddress => self.wrong_address(status, &classified.message),
            // The provider may call it a wrong key.
            LlmErrorKind::Authentication if !self.has_credentials => self.new_failure(
                LlmErrorKind::MissingKey,
                &format!("{SET_KEY}; status {status}: {}", classified.message),
            ),
            kind => self.new_failure(kind, &format!("status {status}: {}", classified.message)),
        };
        failure.error.retry_after = classified.retry_after;
        failure.refused_parameter = classified.refused_parameter;
        failure.refused_history = classified.refused_history;
        failure.requires_responses = classified.requires_responses;
        failure
    }

    /// Converts an error of sending the request.
    pub(crate) fn classify_send_error(&self, error: reqwest::Error) -> Failure {
        let kind = if error.is_builder() {
            LlmErrorKind::BadRequest
        } else if self
            .guard
            .as_ref()
            .is_some_and(|guard| guard.has_refused(&error))
        {
            LlmErrorKind::AddressRefused
        } else if error.is_timeout() && !error.is_connect() {
            LlmErrorKind::Timeout
        } else {
            LlmErrorKind::Connection
        };
        let cause = match tls::is_plain_text_peer(&error) {
            true => "the server does not speak TLS: should base_url start with http://?".to_owned(),
            false => root_cause(&error.without_url()),
        };
        self.new_failure(kind, &format!("{}: {cause}", self.address))
    }

    /// Converts an error of receiving the body.
    pub(crate) fn classify_stream_error(&self, error: reqwest::Error) -> Failure {
        self.new_failure(LlmErrorKind::StreamCut, &root_cause(&error.without_url()))
    }
}

/// Returns the root cause. The errors around it add nothing.
fn root_cause(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    error.to_string()
}
