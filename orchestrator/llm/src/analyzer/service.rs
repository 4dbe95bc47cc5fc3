//! One analyzer's HTTP service: requests to paths below its address, bounded in time and size.

use std::time::Duration;

use engine::security::AnalyzerError;
use reqwest::{Client, Method, RequestBuilder, Response, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::config::{ConfigError, Timeouts};
use crate::wire::client::client;

/// The largest request, as JSON, in bytes.
pub(super) const MAX_REQUEST_BYTES: usize = 1 << 20;

/// The largest answer that is read, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Service {
    client: Client,
    base: Url,
    timeout: Duration,
}

impl Service {
    /// Checks the address; opens no connection.
    pub(super) fn new(url: &str, timeout: Duration) -> Result<Self, ConfigError> {
        let base: Url = url.parse().map_err(|error| ConfigError::BaseUrl { source: Box::new(error) })?;
        let client = client(&base, &Timeouts::default())?;
        Ok(Self { client, base, timeout })
    }

    /// A request to the address itself.
    pub(super) fn post(&self) -> RequestBuilder {
        self.client.post(self.base.clone())
    }

    /// A request to a path below the address. Segments are escaped: they may come from an answer.
    pub(super) fn request_below(
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

    /// Sends a request and reads an answer of the form `expected`.
    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        body: Option<&Value>,
        expected: &str,
    ) -> Result<T, AnalyzerError> {
        let request = match body.map(Value::to_string) {
            Some(body) if body.len() > MAX_REQUEST_BYTES => {
                return Err(refused(format!("is sent no action of more than {MAX_REQUEST_BYTES} bytes")));
            }
            Some(body) => request.header("content-type", "application/json").body(body),
            None => request,
        };
        let response =
            request.send().await.map_err(|error| failed("cannot be reached", error.without_url()))?;
        match response.status() {
            status if status.is_success() => {
                let body = read(response).await?;
                serde_json::from_slice(&body)
                    .map_err(|error| failed(&format!("did not answer with {expected}"), error))
            }
            status => Err(refused(format!("answered with status {status}"))),
        }
    }

    /// The outcome of one assessment, or an error after the configured timeout.
    pub(super) async fn with_timeout<T>(
        &self,
        asked: impl Future<Output = Result<T, AnalyzerError>>,
    ) -> Result<T, AnalyzerError> {
        let late = |_| refused(format!("did not answer within {:?}", self.timeout));
        tokio::time::timeout(self.timeout, asked).await.map_err(late)?
    }
}

async fn read(mut response: Response) -> Result<Vec<u8>, AnalyzerError> {
    let mut body = Vec::new();
    while let Some(chunk) =
        response.chunk().await.map_err(|error| failed("broke off", error.without_url()))?
    {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Err(refused(format!("answered with more than {MAX_ANSWER_BYTES} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

pub(super) fn failed(doing: &str, source: impl std::error::Error + Send + Sync + 'static) -> AnalyzerError {
    AnalyzerError { doing: doing.to_owned(), source: Some(Box::new(source)) }
}

pub(super) fn refused(doing: String) -> AnalyzerError {
    AnalyzerError { doing, source: None }
}
