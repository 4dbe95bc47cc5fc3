//! Sends one request and receives its complete response, with timeouts and without retries.
//!
//! Dropping the call closes the connection, or its stream in the connection.

use std::io::{self, Write};

use engine::llm::{LlmErrorKind, LlmProgress};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Response, Url};
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::StreamFold;
use super::client::new_client;
use super::decoded::DecodeError;
use super::endpoint::Endpoint;
use super::failure::{Failure, Failures};
use super::response::ResponseReader;
use crate::config::{ConfigError, LlmConfig, Timeouts};

/// Maximum size of a request. Source: Anthropic's limit; others accept less or little more.
const MAX_REQUEST_BYTES: usize = 32 << 20;

const COST_HEADERS: [&str; 2] = [
    "x-litellm-response-cost",
    "llm_provider-x-litellm-response-cost",
];

#[derive(Debug)]
pub(crate) struct HttpExchange {
    client: Client,
    endpoint: Endpoint,
    failures: Failures,
    timeouts: Timeouts,
    #[cfg(feature = "testing")]
    in_process: Option<crate::testing::InProcessProvider>,
}

/// Converts a body to JSON. `None` if it is longer than `max` bytes: the rest is not converted,
/// because a long conversation could take much more memory than is ever sent.
fn to_json(body: &Map<String, Value>, max: usize) -> Option<Vec<u8>> {
    struct Bounded {
        bytes: Vec<u8>,
        max: usize,
    }
    impl Write for Bounded {
        fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
            if piece.len() > self.max - self.bytes.len() {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            self.bytes.extend_from_slice(piece);
            Ok(piece.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let bytes = Vec::new();
    let mut json = Bounded { bytes, max };
    serde_json::to_writer(&mut json, body).ok()?;
    Some(json.bytes)
}

/// A complete response, not decoded.
#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) body: Value,
    pub(crate) reported_cost: Option<f64>,
}

impl HttpExchange {
    pub(crate) fn new(endpoint: Endpoint, config: &LlmConfig) -> Result<Self, ConfigError> {
        let client = new_client(
            &endpoint.url,
            &config.timeouts,
            config.connection_guard.as_ref(),
        )?;
        Ok(Self {
            client,
            failures: Failures::new(&endpoint, config.connection_guard.clone()),
            endpoint,
            timeouts: config.timeouts,
            #[cfg(feature = "testing")]
            in_process: config.in_process.clone(),
        })
    }

    /// Creates an exchange with another endpoint of the same host.
    pub(crate) fn with_endpoint(&self, endpoint: Endpoint) -> Self {
        Self {
            client: self.client.clone(),
            failures: self.failures.with_endpoint(&endpoint),
            endpoint,
            timeouts: self.timeouts,
            #[cfg(feature = "testing")]
            in_process: self.in_process.clone(),
        }
    }

    /// Returns the URL of requests.
    pub(crate) fn url(&self) -> &Url {
        &self.endpoint.url
    }

    pub(crate) async fn call(
        &self,
        body: &Map<String, Value>,
        fold: Box<dyn StreamFold>,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<RawResponse, Failure> {
        let total = self.timeouts.total;
        let call = async {
            self.receive(self.send(body).await?, fold, on_progress)
                .await
        };
        timeout(total, call).await.unwrap_or_else(|_| {
            let detail = format!("no complete response within {total:?}");
            Err(self.failures.new_failure(LlmErrorKind::Timeout, &detail))
        })
    }

    /// Converts an error of decoding the body.
    pub(crate) fn decode_failure(&self, error: DecodeError) -> Failure {
        let kind = match error {
            DecodeError::Filtered | DecodeError::Refused(_) => LlmErrorKind::ContentPolicy,
            DecodeError::NotAnObject
            | DecodeError::NoChoices
            | DecodeError::NoMessage
            | DecodeError::NoContent
            | DecodeError::NoOutput
            | DecodeError::LargeCalls => LlmErrorKind::Malformed,
            DecodeError::Failed => LlmErrorKind::Unavailable,
        };
        self.failures.new_failure(kind, &error.to_string())
    }

    async fn send(&self, body: &Map<String, Value>) -> Result<Response, Failure> {
        #[cfg(feature = "testing")]
        if let Some(provider) = &self.in_process {
            return Ok(provider.respond(body));
        }
        let body = to_json(body, MAX_REQUEST_BYTES).ok_or_else(|| self.too_large())?;
        let Endpoint { url, headers, .. } = &self.endpoint;
        let request = self
            .client
            .post(url.clone())
            .header(CONTENT_TYPE, "application/json")
            .headers(headers.clone())
            .body(body)
            .build()
            .map_err(|error| self.failures.classify_send_error(error))?;
        let sending = tls::foreign(self.client.execute(request));
        let limit = self.timeouts.headers;
        let detail = format!("no headers within {limit:?}");
        let timed_out = |_| self.failures.new_failure(LlmErrorKind::Timeout, &detail);
        timeout(limit, sending)
            .await
            .map_err(timed_out)?
            .map_err(|error| self.failures.classify_send_error(error))
    }

    /// Returns the failure of a request that no provider accepts. A count of tokens does not bound
    /// it: providers do not count the reasoning of earlier turns, for example.
    fn too_large(&self) -> Failure {
        let kind = LlmErrorKind::ContextWindowExceeded;
        let detail = format!("not sent: the request has more than {MAX_REQUEST_BYTES} bytes");
        self.failures.new_failure(kind, &detail)
    }

    async fn receive(
        &self,
        response: Response,
        fold: Box<dyn StreamFold>,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<RawResponse, Failure> {
        let is_success = response.status().is_success();
        let mut reader = ResponseReader::new(response, &self.failures, self.timeouts.idle);
        if !is_success {
            return Err(reader.read_error().await);
        }
        let reported_cost = reported_cost(reader.headers(), reader.is_stream());
        Ok(RawResponse {
            body: reader.read(fold, on_progress).await?,
            reported_cost,
        })
    }
}

/// Reads the cost from the headers of a proxy. Ignores a cost of 0 for a stream: its headers
/// precede the count of tokens.
fn reported_cost(headers: &HeaderMap, is_stream: bool) -> Option<f64> {
    let parse = |name| headers.get(name)?.to_str().ok()?.parse::<f64>().ok();
    COST_HEADERS
        .into_iter()
        .find_map(parse)
        .filter(|cost| !is_stream || *cost > 0.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn body_beyond_the_limit_is_not_converted() {
        let body = json!({"text": "x".repeat(100)});
        let body = body.as_object().unwrap();
        let length = serde_json::to_vec(body).unwrap().len();
        assert_eq!(to_json(body, length), serde_json::to_vec(body).ok());
        assert_eq!(to_json(body, length - 1), None);
    }
}
