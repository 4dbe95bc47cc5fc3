//! V0's `invariant`: an Invariant server checks each action and the trace before it against a
//! policy.
//!
//! Its HTTP API, as V0's client uses it: `GET session/new?session_id=…` returns `{id}`, `GET
//! policy/template` returns the server's policy, `POST monitor/new` with `{rule}` returns
//! `{monitor_id}`, and `POST monitor/{id}/check` with `{past_events, pending_events}` returns a
//! list of violations, whose texts contain `risk=low`, `risk=medium` or `risk=high`. Without a
//! violation the risk is low.
//!
//! V0 starts the server in Docker; here its URL is configured. The trace is derived from the event
//! log for each check, so that it survives a restart.

use std::time::Duration;

use async_trait::async_trait;
use engine::security::{AnalyzerError, RiskAssessment, SecurityAnalyzer};
use engine::view::View;
use protocol::{Action, SecurityRisk};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::service::AnalyzerService;
use super::trace::{self, TraceElement};
use crate::config::ConfigError;

/// Maximum number of events before the action that are sent.
const MAX_PAST_EVENTS: usize = 200;

/// Requests each action's risk from an Invariant server.
#[derive(Debug)]
pub struct InvariantAnalyzer {
    service: AnalyzerService,
    /// `None` before the first action. Locked across the requests, so that concurrent actions share
    /// one monitor.
    monitor: Mutex<Option<Monitor>>,
}

/// A session of the server, and its monitor with the policy.
#[derive(Debug, Clone)]
struct Monitor {
    session: String,
    id: String,
}

#[derive(Deserialize)]
struct Session {
    id: String,
}

#[derive(Deserialize)]
struct CreatedMonitor {
    monitor_id: String,
}

impl InvariantAnalyzer {
    /// Validates the URL. Opens no connection. `timeout` limits all requests for one action.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(url: &str, timeout: Duration) -> Result<Self, ConfigError> {
        Ok(Self {
            service: AnalyzerService::new(url, timeout)?,
            monitor: Mutex::default(),
        })
    }

    async fn check(&self, past: &Value, pending: &Value) -> Result<RiskAssessment, AnalyzerError> {
        let mut monitor = self.monitor.lock().await;
        if let Some(existing) = monitor.as_ref() {
            match self.request_check(existing, past, pending).await {
                // A restarted server no longer has the monitor.
                Err(error) => tracing::debug!(%error, "creating another monitor"),
                result => return result,
            }
        }
        let monitor = monitor.insert(self.create_monitor().await?);
        self.request_check(monitor, past, pending).await
    }

    async fn create_monitor(&self) -> Result<Monitor, AnalyzerError> {
        let session_id = Uuid::now_v7().to_string();
        let request = self.service.request_at(
            Method::GET,
            &["session", "new"],
            &[("session_id", &session_id)],
        );
        let Session { id: session } = self.service.send(request, None, "{id}").await?;
        let template = self
            .service
            .request_at(Method::GET, &["policy", "template"], &[]);
        let rule: Option<String> = self.service.send(template, None, "a policy").await?;
        let request = self.service.request_at(
            Method::POST,
            &["monitor", "new"],
            &[("session_id", &session)],
        );
        let body = json!({ "rule": rule.unwrap_or_default() });
        let CreatedMonitor { monitor_id: id } = self
            .service
            .send(request, Some(&body), "{monitor_id}")
            .await?;
        Ok(Monitor { session, id })
    }

    async fn request_check(
        &self,
        Monitor { session, id }: &Monitor,
        past: &Value,
        pending: &Value,
    ) -> Result<RiskAssessment, AnalyzerError> {
        let path = ["monitor", id, "check"];
        let request = self
            .service
            .request_at(Method::POST, &path, &[("session_id", session)]);
        let body = json!({ "past_events": past, "pending_events": pending });
        let violations: Vec<Value> = self
            .service
            .send(request, Some(&body), "a list of violations")
            .await?;
        Ok(highest_risk(&violations))
    }
}

#[async_trait]
impl SecurityAnalyzer for InvariantAnalyzer {
    async fn assess(
        &self,
        action: &Action,
        history: &View,
    ) -> Result<RiskAssessment, AnalyzerError> {
        let past = encode(trace::from_history(history, MAX_PAST_EVENTS));
        let pending = encode(trace::from_action(action, history));
        self.service.with_timeout(self.check(&past, &pending)).await
    }
}

/// Encodes the trace in the server's format, which has no system prompt.
fn encode(trace: Vec<TraceElement>) -> Value {
    let elements = trace.into_iter().filter_map(|element| {
        Some(match element {
            TraceElement::System(_) => return None,
            TraceElement::User(text) => json!({ "metadata": {}, "role": "user", "content": text }),
            TraceElement::Assistant(text) => json!({ "metadata": {}, "role": "assistant", "content": text }),
            TraceElement::Call { id, name, arguments } => json!({
                "metadata": {}, "id": id, "type": "function", "function": { "name": name, "arguments": arguments },
            }),
            TraceElement::Output { call_id, text } => {
                json!({ "metadata": {}, "role": "tool", "content": text, "tool_call_id": call_id })
            }
        })
    });
    elements.collect()
}

/// Returns the highest risk of the violations. Ignores violations without a risk, as in V0.
fn highest_risk(violations: &[Value]) -> RiskAssessment {
    let risks = [
        ("risk=high", SecurityRisk::High),
        ("risk=medium", SecurityRisk::Medium),
        ("risk=low", SecurityRisk::Low),
    ];
    let texts: Vec<String> = violations
        .iter()
        .map(|violation| {
            violation
                .as_str()
                .map_or_else(|| violation.to_string(), str::to_owned)
        })
        .collect();
    let find = |(marker, risk): &(&str, SecurityRisk)| {
        let text = texts.iter().find(|text| text.contains(marker))?;
        Some(RiskAssessment {
            risk: *risk,
            reason: text.clone(),
        })
    };
    risks
        .iter()
        .find_map(find)
        .unwrap_or_else(|| SecurityRisk::Low.into())
}
