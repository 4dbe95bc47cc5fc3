//! Models with random responses, behind the wires of their providers: valid and invalid tool calls,
//! several at once, none, and errors of the providers. A provider refuses what a real one refuses.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use engine::llm::{
    AssistantMessage, ChatMessage, Completion, Llm, LlmError, LlmProgress, LlmRequest, MessagePart,
    ToolCall,
};
use llm::testing::{InProcessProvider, StrictProvider, odd_message};
use llm::{LlmConfig, RetryPolicy};
use serde_json::{Value, json};

use super::world::{FILE, HELPER};

/// The maximum cost of a call, in US dollars.
pub(crate) const PRICE: f64 = 0.1;

/// Starts the text of an error that no history may cause.
const REFUSED: &str = "refused: ";

/// What providers say about a request that is too long.
const OVERFLOWS: [&str; 3] = [
    "prompt is too long: 7 tokens > 6",
    "This model's maximum context length is 6 tokens",
    "prompt too long",
];

/// The provider of a model. It outlives the processes that call it.
pub(crate) struct ModelProvider {
    model: &'static str,
    strict: Mutex<StrictProvider>,
    /// The context window, in messages.
    max_messages: usize,
    requests: Mutex<Requests>,
}

/// What a provider has received, and what is wrong with it.
#[derive(Default)]
struct Requests {
    /// The strings of the latest body.
    latest: HashSet<String>,
    /// Errors that histories have caused, and texts that were lost on the way.
    faults: Vec<String>,
}

/// The histories that have been sent to models.
#[derive(Default)]
pub(crate) struct Histories {
    sent: Mutex<HashSet<u64>>,
    /// What preceded responses in later histories, if no request had ended there.
    changed: Mutex<HashSet<u64>>,
}

impl Histories {
    /// Returns the number of histories that were changed before a response to them.
    pub(crate) fn changed_count(&self) -> usize {
        self.changed.lock().unwrap().len()
    }

    fn add(&self, messages: &[ChatMessage]) {
        let hash = |messages: &[ChatMessage]| {
            let mut hasher = DefaultHasher::new();
            format!("{messages:?}").hash(&mut hasher);
            hasher.finish()
        };
        let mut sent = self.sent.lock().unwrap();
        sent.insert(hash(messages));
        let is_response = |message: &ChatMessage| matches!(message, ChatMessage::Assistant(_));
        if let Some(response) = messages.iter().rposition(is_response) {
            let before = hash(&messages[..response]);
            if !sent.contains(&before) {
                self.changed.lock().unwrap().insert(before);
            }
        }
    }
}

impl ModelProvider {
    pub(crate) fn all(seed: u64, max_messages: usize) -> Vec<Arc<Self>> {
        let new = |strict: StrictProvider| Self {
            model: strict.model(),
            strict: Mutex::new(strict),
            max_messages,
            requests: Mutex::default(),
        };
        StrictProvider::all(seed)
            .into_iter()
            .map(new)
            .map(Arc::new)
            .collect()
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.requests.lock().unwrap().faults.clone()
    }

    /// Checks that the latest body has all texts of a request.
    fn check_complete(&self, request: &LlmRequest) {
        let mut requests = self.requests.lock().unwrap();
        let texts = request
            .messages
            .iter()
            .flat_map(texts)
            .filter(|text| !text.trim().is_empty());
        let is_lost = |text: &&str| {
            let latest = &requests.latest;
            !latest.contains(*text) && !latest.iter().any(|string| string.contains(*text))
        };
        let lost: Vec<_> = texts
            .filter(is_lost)
            .map(|text| format!("{}: lost: {text}", self.model))
            .collect();
        requests.faults.extend(lost);
    }

    /// Returns the model, and how often its reasoning was sent back.
    pub(crate) fn returned_reasoning(&self) -> (&'static str, usize) {
        (self.model, self.strict.lock().unwrap().returned_reasoning())
    }

    pub(crate) fn changed_prefixes(&self) -> usize {
        self.strict.lock().unwrap().changed_prefixes()
    }

    fn answer(
        &self,
        body: &Value,
        chance: &mut fastrand::Rng,
        only_finishes: bool,
    ) -> (u16, Value) {
        let latest = &mut self.requests.lock().unwrap().latest;
        latest.clear();
        collect_strings(body, latest);
        let error =
            |status, text: &str| (status, json!({"error": {"type": "error", "message": text}}));
        let messages = body["messages"]
            .as_array()
            .or(body["input"].as_array())
            .map_or(0, Vec::len);
        if messages > self.max_messages {
            return error(400, OVERFLOWS[chance.usize(..OVERFLOWS.len())]);
        }
        if !only_finishes {
            match chance.u32(..40) {
                0..3 => return error(429, "slow down"),
                3..6 => return error(503, "overloaded"),
                6 => return error(401, "no"),
                7 => return error(400, "no"),
                8 => return (200, json!({})),
                _ => {}
            }
        }
        match self
            .strict
            .lock()
            .unwrap()
            .answer(body, &random_message(chance, only_finishes))
        {
            Ok(response) => (200, response),
            Err(refusal) => error(400, &format!("{REFUSED}{refusal}")),
        }
    }
}

pub(crate) struct Model {
    llm: Arc<dyn Llm>,
    provider: Arc<ModelProvider>,
    histories: Arc<Histories>,
    chance: Arc<Mutex<fastrand::Rng>>,
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
    /// Creates a model. With `only_finishes`, every response finishes the task.
    pub(crate) fn new(
        seed: u64,
        only_finishes: bool,
        sandbox: Arc<SandboxMonitor>,
        provider: &Arc<ModelProvider>,
        histories: &Arc<Histories>,
    ) -> Self {
        let chance = Arc::new(Mutex::new(fastrand::Rng::with_seed(seed)));
        let answer = {
            let (provider, chance) = (Arc::clone(provider), Arc::clone(&chance));
            move |body: &[u8]| {
                let body = serde_json::from_slice(body).unwrap();
                provider.answer(&body, &mut chance.lock().unwrap(), only_finishes)
            }
        };
        let wait = Duration::from_secs(5);
        let config = LlmConfig {
            base_url: Some("http://localhost".into()), // never connected
            retry: RetryPolicy {
                num_retries: 2,
                multiplier: 1.0,
                min_wait: wait,
                max_wait: wait,
            },
            in_process: Some(InProcessProvider::new(answer)),
            ..LlmConfig::new(provider.model)
        };
        let llm = llm::connect(&config).unwrap();
        let (provider, histories) = (Arc::clone(provider), Arc::clone(histories));
        Self {
            llm,
            provider,
            histories,
            chance,
            sandbox,
        }
    }

    fn roll(&self, sides: u32) -> u32 {
        self.chance.lock().unwrap().u32(..sides)
    }
}

#[async_trait]
impl Llm for Model {
    fn model(&self) -> &str {
        self.llm.model()
    }

    fn max_cost(&self, _: u64) -> f64 {
        PRICE
    }

    async fn complete(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        if !self.sandbox.is_connected.load(Ordering::Relaxed) {
            self.sandbox.was_missing.store(true, Ordering::Relaxed);
        }
        tokio::time::sleep(Duration::from_millis(u64::from(self.roll(3000)))).await;
        self.histories.add(&request.messages);
        let result = self.llm.complete(request, on_progress).await;
        match &result {
            Ok(_) => self.provider.check_complete(request),
            Err(error) if error.detail.contains(REFUSED) => {
                let fault = format!("{}: {error}: {request:#?}", self.model());
                self.provider.requests.lock().unwrap().faults.push(fault);
            }
            Err(_) => {}
        }
        let cost = Some(PRICE * f64::from(self.roll(8) + 1) / 8.0);
        Ok(Completion {
            cost,
            latency: Duration::from_secs(1),
            ..result?
        })
    }
}

/// Returns the texts of the user and of results.
fn texts(message: &ChatMessage) -> impl Iterator<Item = &str> {
    let parts = match message {
        ChatMessage::User(parts) | ChatMessage::ToolResult { parts, .. } => parts.as_slice(),
        ChatMessage::System(_) | ChatMessage::Assistant(_) => &[],
    };
    parts.iter().filter_map(|part| match part {
        MessagePart::Text(text) => Some(text.as_str()),
        MessagePart::Image(_) => None,
    })
}

fn collect_strings(value: &Value, strings: &mut HashSet<String>) {
    match value {
        Value::String(text) => drop(strings.insert(text.clone())),
        Value::Array(items) => items.iter().for_each(|item| collect_strings(item, strings)),
        Value::Object(fields) => fields
            .values()
            .for_each(|value| collect_strings(value, strings)),
        _ => {}
    }
}

fn random_message(chance: &mut fastrand::Rng, only_finishes: bool) -> AssistantMessage {
    let text = |text: &str| AssistantMessage {
        text: text.into(),
        ..Default::default()
    };
    match chance.u32(..10) {
        _ if only_finishes => AssistantMessage {
            tool_calls: vec![ToolCall {
                id: "call-1".into(),
                name: "finish".into(),
                arguments: json!({"message": "done"}).to_string(),
                ..Default::default()
            }],
            ..Default::default()
        },
        0 => text("Which one?"),
        1 => text(""),
        2 => text("So:\n```\nb\n```"),
        3 | 4 => {
            let (tool, arguments) = random_call(chance, false);
            odd_message(chance, tool, &arguments)
        }
        _ => AssistantMessage {
            tool_calls: random_calls(chance),
            ..text("now")
        },
    }
}

fn random_calls(chance: &mut fastrand::Rng) -> Vec<ToolCall> {
    let count = [1, 1, 1, 2, 3, 4][chance.usize(..6)];
    let delegates = chance.u32(..6) == 0;
    let call = |number| {
        let (name, arguments) = random_call(chance, delegates);
        let id = format!("call-{}-{number}", chance.u32(..));
        ToolCall {
            id,
            name: name.into(),
            arguments,
            ..Default::default()
        }
    };
    (0..count).map(call).collect()
}

/// Returns the name and the arguments of a call.
fn random_call(chance: &mut fastrand::Rng, delegates: bool) -> (&'static str, String) {
    let delegate = (
        "delegate",
        json!({"agent": HELPER, "task": "help"}).to_string(),
    );
    match chance.u32(..16) {
        _ if delegates => delegate,
        0 => ("finish", json!({"message": "done"}).to_string()),
        1 => ("think", json!({"thought": "hm"}).to_string()),
        2 => ("fly", "{}".into()),
        3 => ("execute_bash", "{\"command\": ".into()),
        4 => ("execute_bash", json!({"command": 7}).to_string()),
        5 => (
            "str_replace_editor",
            json!({"command": "view", "path": "/a"}).to_string(),
        ),
        6 => ("look_up", json!({"word": "glove"}).to_string()),
        7 | 8 => delegate,
        9 => (
            "edit_file",
            json!({"path": FILE, "content": "b"}).to_string(),
        ),
        10 => (
            "edit_file",
            json!({"path": "/b", "content": "b", "start": 7}).to_string(),
        ),
        other => (
            "execute_bash",
            json!({"command": format!("command {other}")}).to_string(),
        ),
    }
}
