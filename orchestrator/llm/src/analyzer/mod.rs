//! Security analyzers behind HTTP: the user's own service ([`HttpAnalyzer`]), an Invariant server
//! ([`InvariantAnalyzer`]) and Gray Swan's Cygnal ([`GraySwanAnalyzer`]).
//!
//! The user's own service receives each action as `{"action": {"action": KIND, "args": {…}}}`, and
//! responds with `{"risk": "low", "reason": "…"}`, where the risk is `low`, `medium`, `high` or
//! `unknown`. Requests are bounded in time and size. A failure of an analyzer is an error; the
//! action's risk is unknown then, as in V0.

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
use service::AnalyzerService;

/// Configuration of an [`HttpAnalyzer`].
#[derive(Debug, Clone)]
pub struct AnalyzerConfig {
    /// The URL, with `http://` or `https://`.
    pub url: String,
    /// The key, sent as a bearer token. `None` if the service requires none.
    pub api_key: Option<SecretString>,
    /// Maximum time from sending the request to the complete response.
    pub timeout: Duration,
}

/// Requests each action's risk from a service.
#[derive(Debug)]
pub struct HttpAnalyzer {
    service: AnalyzerService,
    api_key: Option<SecretString>,
}

#[derive(Deserialize)]
struct RiskResponse {
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
    /// Validates the URL. Opens no connection.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(config: AnalyzerConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            service: AnalyzerService::new(&config.url, config.timeout)?,
            api_key: config.api_key,
        })
    }
}

#[async_trait]
impl SecurityAnalyzer for HttpAnalyzer {
    async fn assess(
        &self,
        action: &Action,
        _history: &View,
    ) -> Result<RiskAssessment, AnalyzerError> {
        let arguments = serde_json::to_value(action.fields())
            .map_err(|error| service::error_with_source("cannot assess the action", error))?;
        let body = json!({"action": {"action": action.kind(), "args": arguments}});
        let request = self.service.post();
        let request = match &self.api_key {
            Some(key) => request.bearer_auth(key.expose_secret()),
            None => request,
        };
        let response: RiskResponse = self
            .service
            .with_timeout(self.service.send(request, Some(&body), "{risk, reason}"))
            .await?;
        let risk = match response.risk {
            Risk::Low => SecurityRisk::Low,
            Risk::Medium => SecurityRisk::Medium,
            Risk::High => SecurityRisk::High,
            Risk::Unknown => SecurityRisk::Unknown,
        };
        Ok(RiskAssessment {
            risk,
            reason: response.reason,
        })
    }
}
