//! A model with random responses: valid and invalid tool calls, several at once, none, and errors of its provider.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use engine::llm::{Completion, Llm, LlmError, LlmErrorKind, LlmProgress, LlmRequest, ModelResponse};
use protocol::metrics::TokenUsage;
use serde_json::{Value, json};

use super::world::{FILE, HELPER};

/// The maximum cost of a call, in US dollars.
pub(crate) const PRICE: f64 = 0.1;

pub(crate) struct Model {
    chance: Mutex<fastrand::Rng>,
    /// Whether every response finishes the task.
    only_finishes: bool,
    sandbox: Arc<SandboxMonitor>,
}

/// Tracks whether the process has a sandbox.
#[derive(Default)]
pub(crate) struct SandboxMonitor {
    pub(crate) is_connected: AtomicBool,
    /// Whether a model was called without a sandbox.
    pub(crate) was_missing: Arc<AtomicBool>,
}

impl Model {
    pub(crate) fn new(seed: u64, only_finishes: bool, sandbox: Arc<SandboxMonitor>) -> Self {
        Self { chance: Mutex::new(fastrand::Rng::with_seed(seed)), only_finishes, sandbox }
    }

    fn roll(&self, sides: u32) -> u32 {
        self.chance.lock().unwrap().u32(..sides)
    }

    fn calls(&self) -> Vec<Value> {
        let count = [1, 1, 1, 2, 3, 4][self.roll(6) as usize];
        let delegates = self.roll(6) == 0;
        let call = |number| {
            let (name, arguments) = match self.roll(16) {
                _ if delegates && !self.only_finishes => {
                    ("delegate", json!({"agent": HELPER, "task": "help"}).to_string())
                }
                _ if self.only_finishes => ("finish", json!({"message": "done"}).to_string()),
                0 => ("finish", json!({"message": "done"}).to_string()),
                1 => ("think", json!({"thought": "hm"}).to_string()),
                2 => ("fly", "{}".into()),
                3 => ("execute_bash", "{\"command\": ".into()),
                4 => ("execute_bash", json!({"command": 7}).to_string()),
                6 => ("look_up", json!({"word": "glove"}).to_string()),
                5 => ("str_replace_editor", json!({"command": "view", "path": "/a"}).to_string()),
                7 | 8 => ("delegate", json!({"agent": HELPER, "task": "help"}).to_string()),
                9 => ("edit_file", json!({"path": FILE, "content": "b"}).to_string()),
                10 => ("edit_file", json!({"path": "/b", "content": "b", "start": 7}).to_string()),
                other => ("execute_bash", json!({"command": format!("command {other}")}).to_string()),
            };
            let id = format!("call-{}-{number}", self.roll(u32::MAX));
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
        };
        (0..count).map(call).collect()
    }
}

#[async_trait]
impl Llm for Model {
    fn model(&self) -> &str {
        "any"
    }

    fn max_cost(&self, _: u64) -> f64 {
        PRICE
    }

    async fn complete(
        &self,
        _: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        if !self.sandbox.is_connected.load(Ordering::Relaxed) {
            self.sandbox.was_missing.store(true, Ordering::Relaxed);
        }
        tokio::time::sleep(Duration::from_millis(u64::from(self.roll(3000)))).await;
        if !self.only_finishes && self.roll(8) == 0 {
            let error = [LlmErrorKind::RateLimited, LlmErrorKind::Unavailable][self.roll(2) as usize];
            let after = Duration::from_secs(5);
            on_progress(LlmProgress::Retrying { attempt: 2, attempts: 3, after, error });
            tokio::time::sleep(after).await;
        }
        if !self.only_finishes && self.roll(15) == 0 {
            let kinds = [LlmErrorKind::Authentication, LlmErrorKind::RateLimited, LlmErrorKind::Malformed];
            let kind = kinds[self.roll(3) as usize];
            return Err(LlmError { kind, detail: "no".into(), retry_after: None });
        }
        let message = match self.roll(10) {
            0 if !self.only_finishes => json!({"role": "assistant", "content": "Which one?"}),
            1 if !self.only_finishes => json!({"role": "assistant", "content": null}),
            2 if !self.only_finishes => json!({"role": "assistant", "content": "So:\n```\nb\n```"}),
            _ => json!({"role": "assistant", "content": "now", "tool_calls": self.calls()}),
        };
        let id = format!("response-{}", self.roll(u32::MAX));
        Ok(Completion {
            response: ModelResponse::from_stored(json!({"id": id, "choices": [{"message": message}]})),
            usage: TokenUsage { prompt_tokens: 10, completion_tokens: 1, ..Default::default() },
            cost: Some(PRICE * f64::from(self.roll(8) + 1) / 8.0),
            latency: Duration::from_secs(1),
        })
    }
}
