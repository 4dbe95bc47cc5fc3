//! Security analyzers behind HTTP: a service of the user's own ([`HttpAnalyzer`]), an Invariant server
//! ([`InvariantAnalyzer`]) and Gray Swan's Cygnal ([`GraySwanAnalyzer`]).
//!
//! To the user's own each action is posted as `{"action": {"action": KIND, "args": {…}}}`; the answer is
//! `{"risk": "low", "reason": "…"}` with `low`, `medium`, `high` or `unknown`. All are bounded in time and size. An
//! analyzer that fails is an error: the action's risk is unknown then, as in V0.

mod grayswan;
mod invariant;
mod service;
mod trace;

use std::time::Duration;

use async_trait::async_trait;
use engine::security::{AnalyzerError, RiskAssessment, SecurityAnalyzer};
use engine::view::View;
use protocol::{Action, SecurityRisk};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;

use crate::config::ConfigError;
pub use grayswan::GraySwanAnalyzer;
pub use invariant::InvariantAnalyzer;
use service::Service;

/// Where an analyzer is, and how it is asked.
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
    service: Service,
    api_key: Option<SecretString>,
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
        Ok(Self { service: Service::new(&config.url, config.timeout)?, api_key: config.api_key })
    }
}

#[async_trait]
impl SecurityAnalyzer for HttpAnalyzer {
    async fn assess(&self, action: &Action, _history: &View) -> Result<RiskAssessment, AnalyzerError> {
        let arguments = serde_json::to_value(action.fields())
            .map_err(|error| service::failed("cannot be sent the action", error))?;
        let body = json!({"action": {"action": action.kind(), "args": arguments}});
        let request = self.service.post();
        let request = match &self.api_key {
            Some(key) => request.bearer_auth(key.expose_secret()),
            None => request,
        };
        let answer: Answer =
            self.service.with_timeout(self.service.send(request, Some(&body), "{risk, reason}")).await?;
        let risk = match answer.risk {
            Risk::Low => SecurityRisk::Low,
            Risk::Medium => SecurityRisk::Medium,
            Risk::High => SecurityRisk::High,
            Risk::Unknown => SecurityRisk::Unknown,
        };
        Ok(RiskAssessment { risk, reason: answer.reason })
    }
}
