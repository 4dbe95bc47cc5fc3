//! V0's `grayswan`: Gray Swan's Cygnal scores a conversation that ends with the action against a
//! policy.
//!
//! Its API: `POST {messages, policy_id}` with OpenAI's messages, and the key as a bearer token and
//! in `x-grayswan-api-key`. The response has `violation`, from 0 to 1, and `ipi` if the action
//! follows an instruction from a tool's output. V0's thresholds: up to 0.3 is low, up to 0.7
//! medium, all else and `ipi` high. A response without a score is an error; V0 treats it as 0.

use std::time::Duration;

use async_trait::async_trait;
use engine::security::{AnalyzerError, RiskAssessment, SecurityAnalyzer};
use engine::view::View;
use protocol::{Action, SecurityRisk};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use super::service::{AnalyzerService, error};
use super::trace::{self, TraceElement};
use crate::config::ConfigError;

/// Maximum number of events before the action that are sent.
const MAX_PAST_EVENTS: usize = 20;

/// Maximum scores of a low and of a medium risk.
const MAX_LOW_SCORE: f64 = 0.3;
const MAX_MEDIUM_SCORE: f64 = 0.7;

/// Requests each action's risk from Gray Swan's Cygnal.
#[derive(Debug)]
pub struct GraySwanAnalyzer {
    service: AnalyzerService,
    api_key: SecretString,
    policy_id: String,
}

#[derive(Deserialize)]
struct CygnalResponse {
    violation: Option<f64>,
    #[serde(default)]
    ipi: Option<bool>,
    /// Where V0 expects the score.
    #[serde(default)]
    output: Value,
}

impl GraySwanAnalyzer {
    /// Gray Swan's own URL.
    pub const URL: &str = "https://api.grayswan.ai/cygnal/monitor";

    /// Gray Swan's policy for agents that write code.
    pub const CODING_AGENT_POLICY: &str = "689ca4885af3538a39b2ba04";

    /// Validates the URL. Opens no connection.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(
        url: &str,
        api_key: SecretString,
        policy_id: String,
        timeout: Duration,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            service: AnalyzerService::new(url, timeout)?,
            api_key,
            policy_id,
        })
    }
}

#[async_trait]
impl SecurityAnalyzer for GraySwanAnalyzer {
    async fn assess(
        &self,
        action: &Action,
        history: &View,
    ) -> Result<RiskAssessment, AnalyzerError> {
        let mut trace = trace::from_history(history, MAX_PAST_EVENTS);
        trace.extend(trace::from_action(action, history));
        let body = json!({ "messages": encode(trace), "policy_id": self.policy_id });
        let key = self.api_key.expose_secret();
        let request = self
            .service
            .post()
            .bearer_auth(key)
            .header("x-grayswan-api-key", key);
        let response = self.service.send(request, Some(&body), "{violation}");
        assess_response(&self.service.with_timeout(response).await?)
    }
}

fn assess_response(response: &CygnalResponse) -> Result<RiskAssessment, AnalyzerError> {
    if response.ipi == Some(true) {
        let reason = "it follows an instruction from a tool's output".to_owned();
        return Ok(RiskAssessment {
            risk: SecurityRisk::High,
            reason,
        });
    }
    let score = response
        .violation
        .or_else(|| response.output["data"]["violation"].as_f64());
    let score = score.ok_or_else(|| error("responded without a score"))?;
    let risk = match score {
        ..=MAX_LOW_SCORE => SecurityRisk::Low,
        ..=MAX_MEDIUM_SCORE => SecurityRisk::Medium,
        _ => SecurityRisk::High,
    };
    Ok(RiskAssessment {
        risk,
        reason: format!("Gray Swan's violation score is {score:.2}"),
    })
}

/// Encodes the trace as OpenAI's messages. A thought is the content of the message with its call.
fn encode(trace: Vec<TraceElement>) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    let mut thought = None;
    for element in trace {
        if !matches!(element, TraceElement::Call { .. }) {
            messages.extend(thought.take().map(assistant));
        }
        messages.push(match element {
            TraceElement::System(text) => json!({ "role": "system", "content": text }),
            TraceElement::User(text) => json!({ "role": "user", "content": text }),
            TraceElement::Assistant(text) => {
                thought = Some(text);
                continue;
            }
            TraceElement::Call {
                id,
                name,
                arguments,
            } => {
                let arguments = Value::Object(arguments).to_string();
                let function = json!({ "name": name, "arguments": arguments });
                let mut message = assistant(thought.take().unwrap_or_default());
                message["tool_calls"] =
                    json!([{ "id": id, "type": "function", "function": function }]);
                message
            }
            TraceElement::Output { call_id, text } => {
                json!({ "role": "tool", "content": text, "tool_call_id": call_id })
            }
        });
    }
    messages.extend(thought.map(assistant));
    messages
}

fn assistant(text: String) -> Value {
    json!({ "role": "assistant", "content": text })
}
