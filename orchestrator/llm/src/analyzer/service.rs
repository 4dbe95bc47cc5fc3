//! The HTTP service of an analyzer, with requests that are bounded in time and size.

use std::time::Duration;

use engine::security::AnalyzerError;
use reqwest::{Client, Method, RequestBuilder, Response, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::config::{ConfigError, Timeouts};
use crate::wire::client::new_client;

/// Maximum size of a request, in bytes.
pub(super) const MAX_REQUEST_BYTES: usize = 1 << 20;

/// Maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct AnalyzerService {
    client: Client,
    base: Url,
    timeout: Duration,
}

impl AnalyzerService {
    /// Validates the URL. Opens no connection.
    pub(super) fn new(url: &str, timeout: Duration) -> Result<Self, ConfigError> {
        let base: Url = url.parse().map_err(|error| ConfigError::BaseUrl {
            source: Box::new(error),
        })?;
        let client = new_client(&base, &Timeouts::default(), None)?;
        Ok(Self {
            client,
            base,
            timeout,
        })
    }

    /// Creates a request to the base URL.
    pub(super) fn post(&self) -> RequestBuilder {
        self.client.post(self.base.clone())
    }

    /// Creates a request to a path below the base URL. Escapes its segments, which may come from a
    /// response.
    pub(super) fn request_at(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.client.request(method, url)
    }

    /// Sends a request, and parses the response. `expected` describes its format.
    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        body: Option<&Value>,
        expected: &str,
    ) -> Result<T, AnalyzerError> {
        let request = match body.map(Value::to_string) {
            Some(body) if body.len() > MAX_REQUEST_BYTES => {
                return Err(error(format!(
                    "cannot assess an action of more than {MAX_REQUEST_BYTES} bytes"
                )));
            }
            Some(body) => request
                .header("content-type", "application/json")
                .body(body),
            None => request,
        };
        let response = tls::foreign(request.send())
            .await
            .map_err(|source| error_with_source("cannot be reached", source.without_url()))?;
        let status = response.status();
        if !status.is_success() {
            return Err(error(format!("responded with status {status}")));
        }
        protocol::untrusted_json::from_slice(&read_body(response).await?)
            .map_err(|source| error_with_source(format!("did not respond with {expected}"), source))
    }

    /// Limits an assessment to the configured timeout.
    pub(super) async fn with_timeout<T>(
        &self,
        assessment: impl Future<Output = Result<T, AnalyzerError>>,
    ) -> Result<T, AnalyzerError> {
        let timed_out = |_| error(format!("did not respond within {:?}", self.timeout));
        tokio::time::timeout(self.timeout, assessment)
            .await
            .map_err(timed_out)?
    }
}

async fn read_body(mut response: Response) -> Result<Vec<u8>, AnalyzerError> {
    let mut body = Vec::new();
    let incomplete = |source: reqwest::Error| {
        error_with_source("did not complete its response", source.without_url())
    };
    while let Some(chunk) = response.chunk().await.map_err(incomplete)? {
        if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
            return Err(error(format!(
                "responded with more than {MAX_RESPONSE_BYTES} bytes"
            )));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

pub(super) fn error_with_source(
    failure: impl Into<String>,
    source: impl std::error::Error + Send + Sync + 'static,
) -> AnalyzerError {
    AnalyzerError {
        failure: failure.into(),
        source: Some(Box::new(source)),
    }
}

pub(super) fn error(failure: impl Into<String>) -> AnalyzerError {
    AnalyzerError {
        failure: failure.into(),
        source: None,
    }
}
