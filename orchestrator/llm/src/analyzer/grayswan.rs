//! V0's `grayswan`: Gray Swan's Cygnal scores a conversation that ends with the action against a policy.
//!
//! Facts of its API: `POST {messages, policy_id}`, messages as OpenAI has them, with the key as a bearer token and in
//! `x-grayswan-api-key`. The answer holds `violation`, from 0 to 1, and `ipi` where the action follows an instruction that
//! came in with a tool's output. V0's thresholds: up to 0.3 is low, up to 0.7 medium, the rest and `ipi` high. An answer
//! without a score is an error, where V0 takes it for 0.

use std::time::Duration;

use async_trait::async_trait;
use engine::security::{AnalyzerError, RiskAssessment, SecurityAnalyzer};
use engine::view::View;
use protocol::{Action, SecurityRisk};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use super::service::{Service, refused};
use super::trace::{self, Element};
use crate::config::ConfigError;

/// The events before the action that are sent.
const MAX_PAST_EVENTS: usize = 20;

/// Up to which score the risk is low, and medium.
const LOW: f64 = 0.3;
const MEDIUM: f64 = 0.7;

/// Judges by Gray Swan's Cygnal.
#[derive(Debug)]
pub struct GraySwanAnalyzer {
    service: Service,
    api_key: SecretString,
    policy_id: String,
}

#[derive(Deserialize)]
struct Answer {
    violation: Option<f64>,
    #[serde(default)]
    ipi: Option<bool>,
    /// Where V0 looks for the score.
    #[serde(default)]
    output: Value,
}

impl GraySwanAnalyzer {
    /// Gray Swan's own address.
    pub const URL: &str = "https://api.grayswan.ai/cygnal/monitor";

    /// Gray Swan's policy for agents that write code.
    pub const CODING_AGENT_POLICY: &str = "689ca4885af3538a39b2ba04";

    /// Checks the address; opens no connection.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(
        url: &str,
        api_key: SecretString,
        policy_id: String,
        timeout: Duration,
    ) -> Result<Self, ConfigError> {
        Ok(Self { service: Service::new(url, timeout)?, api_key, policy_id })
    }
}

#[async_trait]
impl SecurityAnalyzer for GraySwanAnalyzer {
    async fn assess(&self, action: &Action, history: &View) -> Result<RiskAssessment, AnalyzerError> {
        let mut trace = trace::from_history(history, MAX_PAST_EVENTS);
        trace.extend(trace::from_action(action, history));
        let body = json!({ "messages": encode(trace), "policy_id": self.policy_id });
        let key = self.api_key.expose_secret();
        let request = self.service.post().bearer_auth(key).header("x-grayswan-api-key", key);
        let asked = self.service.send(request, Some(&body), "{violation}");
        judgement(&self.service.with_timeout(asked).await?)
    }
}

fn judgement(answer: &Answer) -> Result<RiskAssessment, AnalyzerError> {
    if answer.ipi == Some(true) {
        let reason = "it follows an instruction that came in with a tool's output".to_owned();
        return Ok(RiskAssessment { risk: SecurityRisk::High, reason });
    }
    let score = answer.violation.or_else(|| answer.output["data"]["violation"].as_f64());
    let score = score.ok_or_else(|| refused("answered without a score".to_owned()))?;
    let risk = match score {
        ..=LOW => SecurityRisk::Low,
        ..=MEDIUM => SecurityRisk::Medium,
        _ => SecurityRisk::High,
    };
    Ok(RiskAssessment { risk, reason: format!("Gray Swan's violation score is {score:.2}") })
}

/// The trace as OpenAI's messages. A thought is the content of the message with its call.
fn encode(trace: Vec<Element>) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    let mut thought = None;
    for element in trace {
        if !matches!(element, Element::Call { .. }) {
            messages.extend(thought.take().map(assistant));
        }
        messages.push(match element {
            Element::System(text) => json!({ "role": "system", "content": text }),
            Element::User(text) => json!({ "role": "user", "content": text }),
            Element::Assistant(text) => {
                thought = Some(text);
                continue;
            }
            Element::Call { id, name, arguments } => {
                let arguments = Value::Object(arguments).to_string();
                let function = json!({ "name": name, "arguments": arguments });
                let mut message = assistant(thought.take().unwrap_or_default());
                message["tool_calls"] = json!([{ "id": id, "type": "function", "function": function }]);
                message
            }
            Element::Output { call_id, text } => {
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
