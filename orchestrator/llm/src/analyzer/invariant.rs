//! V0's `invariant`: a server of Invariant's that checks each action against a policy, given the trace before it.
//!
//! Facts of its HTTP API, as V0's client uses it: `GET session/new?session_id=…` answers `{id}`, `GET policy/template` the
//! server's policy, `POST monitor/new` with `{rule}` answers `{monitor_id}`, and `POST monitor/{id}/check` with
//! `{past_events, pending_events}` a list of violations, whose texts hold `risk=low`, `risk=medium` or `risk=high`.
//! Without a violation the risk is low.
//!
//! V0 starts the server in Docker; here its address is configured. The trace is derived from the log each time, so that a
//! restart of this program loses nothing of it.

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

use super::service::Service;
use super::trace::{self, Element};
use crate::config::ConfigError;

/// The events that are sent as the past.
const MAX_PAST_EVENTS: usize = 200;

/// Judges by the policy of an Invariant server.
#[derive(Debug)]
pub struct InvariantAnalyzer {
    service: Service,
    /// `None` before the first action. Locked across the requests, so that concurrent actions share one monitor.
    monitor: Mutex<Option<Monitor>>,
}

/// A session of the server's and the monitor in it that holds the policy.
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
struct Created {
    monitor_id: String,
}

impl InvariantAnalyzer {
    /// Checks the address; opens no connection. `timeout` is for all that one action takes.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(url: &str, timeout: Duration) -> Result<Self, ConfigError> {
        Ok(Self { service: Service::new(url, timeout)?, monitor: Mutex::default() })
    }

    async fn check(&self, past: &Value, pending: &Value) -> Result<RiskAssessment, AnalyzerError> {
        let mut kept = self.monitor.lock().await;
        if let Some(monitor) = kept.as_ref() {
            match self.request_check(monitor, past, pending).await {
                // A restarted server no longer has the monitor.
                Err(error) => tracing::debug!(%error, "creating another monitor"),
                judged => return judged,
            }
        }
        let monitor = kept.insert(self.create_monitor().await?);
        self.request_check(monitor, past, pending).await
    }

    async fn create_monitor(&self) -> Result<Monitor, AnalyzerError> {
        let named = Uuid::now_v7().to_string();
        let request = self.service.request_below(Method::GET, &["session", "new"], &[("session_id", &named)]);
        let Session { id: session } = self.service.send(request, None, "{id}").await?;
        let template = self.service.request_below(Method::GET, &["policy", "template"], &[]);
        let rule: Option<String> = self.service.send(template, None, "a policy").await?;
        let request =
            self.service.request_below(Method::POST, &["monitor", "new"], &[("session_id", &session)]);
        let body = json!({ "rule": rule.unwrap_or_default() });
        let Created { monitor_id: id } = self.service.send(request, Some(&body), "{monitor_id}").await?;
        Ok(Monitor { session, id })
    }

    async fn request_check(
        &self,
        Monitor { session, id }: &Monitor,
        past: &Value,
        pending: &Value,
    ) -> Result<RiskAssessment, AnalyzerError> {
        let path = ["monitor", id, "check"];
        let request = self.service.request_below(Method::POST, &path, &[("session_id", session)]);
        let body = json!({ "past_events": past, "pending_events": pending });
        let violations: Vec<Value> = self.service.send(request, Some(&body), "a list of violations").await?;
        Ok(judgement(&violations))
    }
}

#[async_trait]
impl SecurityAnalyzer for InvariantAnalyzer {
    async fn assess(&self, action: &Action, history: &View) -> Result<RiskAssessment, AnalyzerError> {
        let past = encode(trace::from_history(history, MAX_PAST_EVENTS));
        let pending = encode(trace::from_action(action, history));
        self.service.with_timeout(self.check(&past, &pending)).await
    }
}

/// The trace in the server's format, which has no system prompt.
fn encode(trace: Vec<Element>) -> Value {
    let elements = trace.into_iter().filter_map(|element| {
        Some(match element {
            Element::System(_) => return None,
            Element::User(text) => json!({ "metadata": {}, "role": "user", "content": text }),
            Element::Assistant(text) => json!({ "metadata": {}, "role": "assistant", "content": text }),
            Element::Call { id, name, arguments } => json!({
                "metadata": {}, "id": id, "type": "function", "function": { "name": name, "arguments": arguments },
            }),
            Element::Output { call_id, text } => {
                json!({ "metadata": {}, "role": "tool", "content": text, "tool_call_id": call_id })
            }
        })
    });
    elements.collect()
}

/// The highest risk of the violations. A violation that states no risk does not count, as in V0.
fn judgement(violations: &[Value]) -> RiskAssessment {
    let risks = [
        ("risk=high", SecurityRisk::High),
        ("risk=medium", SecurityRisk::Medium),
        ("risk=low", SecurityRisk::Low),
    ];
    let texts: Vec<String> = violations
        .iter()
        .map(|violation| violation.as_str().map_or_else(|| violation.to_string(), str::to_owned))
        .collect();
    let found = |(words, risk): &(&str, SecurityRisk)| {
        let text = texts.iter().find(|text| text.contains(words))?;
        Some(RiskAssessment { risk: *risk, reason: text.clone() })
    };
    risks.iter().find_map(found).unwrap_or_else(|| SecurityRisk::Low.into())
}
