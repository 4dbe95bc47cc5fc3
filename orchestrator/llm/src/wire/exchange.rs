//! One request, one whole answer, in time. Never tries again.
//!
//! Dropping the call closes the connection, or the stream in it.

use engine::llm::{LlmErrorKind, LlmProgress};
use reqwest::header::HeaderMap;
use reqwest::{Client, Response, Url};
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::Fold;
use super::answer::Incoming;
use super::client::client;
use super::decode::Problem;
use super::endpoint::Endpoint;
use super::failure::{Failure, Failures};
use crate::config::{ConfigError, Timeouts};

const COST_HEADERS: [&str; 2] = ["x-litellm-response-cost", "llm_provider-x-litellm-response-cost"];

#[derive(Debug)]
pub(crate) struct Exchange {
    client: Client,
    endpoint: Endpoint,
    failures: Failures,
    timeouts: Timeouts,
}

/// What came, in one piece.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) body: Value,
    pub(crate) stated_cost: Option<f64>,
}

impl Exchange {
    pub(crate) fn new(endpoint: Endpoint, timeouts: Timeouts) -> Result<Self, ConfigError> {
        let client = client(&endpoint.url, &timeouts)?;
        let failures = Failures::new(&endpoint);
        Ok(Self { client, endpoint, failures, timeouts })
    }

    /// Where requests go.
    pub(crate) fn url(&self) -> &Url {
        &self.endpoint.url
    }

    pub(crate) async fn call(
        &self,
        body: &Map<String, Value>,
        fold: Box<dyn Fold>,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Answer, Failure> {
        let total = self.timeouts.total;
        let whole = async { self.receive(self.send(body).await?, fold, on_progress).await };
        let late = || self.failures.of(LlmErrorKind::Timeout, &format!("no whole answer within {total:?}"));
        timeout(total, whole).await.unwrap_or_else(|_| Err(late()))
    }

    /// What came is not an answer.
    pub(crate) fn problem(&self, problem: Problem) -> Failure {
        let kind = match problem {
            Problem::Filtered => LlmErrorKind::ContentPolicy,
            Problem::NoObject | Problem::NoChoices | Problem::NoMessage | Problem::NoContent => {
                LlmErrorKind::Malformed
            }
        };
        self.failures.of(kind, &problem.to_string())
    }

    async fn send(&self, body: &Map<String, Value>) -> Result<Response, Failure> {
        let Endpoint { url, headers, .. } = &self.endpoint;
        let sending = self.client.post(url.clone()).headers(headers.clone()).json(body).send();
        let limit = self.timeouts.headers;
        let late = || self.failures.of(LlmErrorKind::Timeout, &format!("no headers within {limit:?}"));
        timeout(limit, sending).await.map_err(|_| late())?.map_err(|error| self.failures.unsent(error))
    }

    async fn receive(
        &self,
        response: Response,
        fold: Box<dyn Fold>,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Answer, Failure> {
        let succeeded = response.status().is_success();
        let mut incoming = Incoming::new(response, &self.failures, self.timeouts.idle);
        if !succeeded {
            return Err(incoming.read_refusal().await);
        }
        let stated_cost = stated_cost(incoming.headers(), incoming.is_stream());
        Ok(Answer { body: incoming.read(fold, on_progress).await?, stated_cost })
    }
}

/// A proxy sends its headers before a stream's tokens are counted; then a cost of nothing only means that.
fn stated_cost(headers: &HeaderMap, streamed: bool) -> Option<f64> {
    let parse = |name| headers.get(name)?.to_str().ok()?.parse::<f64>().ok();
    COST_HEADERS.into_iter().find_map(parse).filter(|cost| !streamed || *cost > 0.0)
}
