//! A security analyzer of the user's own, behind HTTP.
//!
//! Each action is posted as `{"action": {"action": KIND, "args": {…}}}`; the answer is `{"risk": "low", "reason": "…"}`
//! with `low`, `medium`, `high` or `unknown`. Bounded in time and size; never asked twice.

use std::time::Duration;

use async_trait::async_trait;
use engine::security::{AnalyzerError, Judgement, SecurityAnalyzer};
use protocol::{Action, SecurityRisk};
use reqwest::{Client, Response, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;

use crate::config::{ConfigError, Timeouts};
use crate::wire::client::client;

/// The largest action that is sent, as JSON, in bytes.
const LARGEST_REQUEST: usize = 1 << 20;

/// The largest answer that is read, in bytes.
const LARGEST_ANSWER: usize = 64 << 10;

/// Where the analyzer is, and how it is asked.
#[derive(Debug, Clone)]
pub struct AnalyzerConfig {
    /// `http://` or `https://`.
    pub url: String,
    /// Sent as a bearer token.
    pub api_key: Option<SecretString>,
    /// From sending to the whole answer.
    pub timeout: Duration,
}

/// Asks a service for each action's risk.
#[derive(Debug)]
pub struct HttpAnalyzer {
    client: Client,
    url: Url,
    api_key: Option<SecretString>,
    timeout: Duration,
}

#[derive(Deserialize)]
struct Answer {
    risk: Risk,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Risk {
    #[serde(alias = "LOW")]
    Low,
    #[serde(alias = "MEDIUM")]
    Medium,
    #[serde(alias = "HIGH")]
    High,
    #[serde(alias = "UNKNOWN")]
    Unknown,
}

impl HttpAnalyzer {
    /// Checks the address; opens no connection.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(config: AnalyzerConfig) -> Result<Self, ConfigError> {
        let url: Url =
            config.url.parse().map_err(|error| ConfigError::BaseUrl { source: Box::new(error) })?;
        let client = client(&url, &Timeouts::default())?;
        Ok(Self { client, url, api_key: config.api_key, timeout: config.timeout })
    }

    async fn ask(&self, action: &Action) -> Result<Answer, AnalyzerError> {
        let body = json!({"action": {
            "action": action.kind(),
            "args": serde_json::to_value(action.fields()).map_err(|error| failed("cannot be sent the action", error))?,
        }});
        let body = body.to_string();
        if body.len() > LARGEST_REQUEST {
            return Err(refused(format!("is sent no action of more than {LARGEST_REQUEST} bytes")));
        }
        let request =
            self.client.post(self.url.clone()).header("content-type", "application/json").body(body);
        let request = match &self.api_key {
            Some(key) => request.bearer_auth(key.expose_secret()),
            None => request,
        };
        let response =
            request.send().await.map_err(|error| failed("cannot be reached", error.without_url()))?;
        match response.status() {
            status if status.is_success() => read(response).await,
            status => Err(refused(format!("answered with status {status}"))),
        }
    }
}

#[async_trait]
impl SecurityAnalyzer for HttpAnalyzer {
    async fn assess(&self, action: &Action) -> Result<Judgement, AnalyzerError> {
        let late = |_| refused(format!("did not answer within {:?}", self.timeout));
        let answer = tokio::time::timeout(self.timeout, self.ask(action)).await.map_err(late)??;
        let risk = match answer.risk {
            Risk::Low => SecurityRisk::Low,
            Risk::Medium => SecurityRisk::Medium,
            Risk::High => SecurityRisk::High,
            Risk::Unknown => SecurityRisk::Unknown,
        };
        Ok(Judgement { risk, reason: answer.reason })
    }
}

async fn read(mut response: Response) -> Result<Answer, AnalyzerError> {
    let mut body = Vec::new();
    while let Some(chunk) =
        response.chunk().await.map_err(|error| failed("broke off", error.without_url()))?
    {
        if body.len() + chunk.len() > LARGEST_ANSWER {
            return Err(refused(format!("answered with more than {LARGEST_ANSWER} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    serde_json::from_slice(&body).map_err(|error| failed("did not answer with {risk, reason}", error))
}

fn failed(doing: &str, source: impl std::error::Error + Send + Sync + 'static) -> AnalyzerError {
    AnalyzerError { doing: doing.to_owned(), source: Some(Box::new(source)) }
}

fn refused(doing: String) -> AnalyzerError {
    AnalyzerError { doing, source: None }
}
