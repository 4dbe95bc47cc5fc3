//! Cost and token usage of a conversation: V0's `llm_metrics`.

use serde::{Deserialize, Serialize};

use crate::lenient::null_is_default;

/// The totals of a conversation so far, and the calls they add up. Costs are in US dollars.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// The sum of all costs. Never decreases.
    #[serde(default, deserialize_with = "null_is_default")]
    pub accumulated_cost: f64,
    /// The budget. No step starts once it is exceeded.
    #[serde(default)]
    pub max_budget_per_task: Option<f64>,
    /// The sum of all usages; its `per_turn_token` is that of the last call.
    #[serde(default, deserialize_with = "null_is_default")]
    pub accumulated_token_usage: TokenUsage,
    /// One entry per call whose price is known.
    #[serde(default, deserialize_with = "null_is_default")]
    pub costs: Vec<Cost>,
    /// One entry per call.
    #[serde(default, deserialize_with = "null_is_default")]
    pub response_latencies: Vec<ResponseLatency>,
    /// One entry per call.
    #[serde(default, deserialize_with = "null_is_default")]
    pub token_usages: Vec<TokenUsage>,
}

/// The cost of one call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The model that was called.
    #[serde(default, deserialize_with = "null_is_default")]
    pub model: String,
    /// In US dollars.
    #[serde(default, deserialize_with = "null_is_default")]
    pub cost: f64,
    /// When the call was made, in seconds since the Unix epoch.
    #[serde(default, deserialize_with = "null_is_default")]
    pub timestamp: f64,
}

/// The latency of one call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseLatency {
    /// The model that was called.
    #[serde(default, deserialize_with = "null_is_default")]
    pub model: String,
    /// In seconds, from sending the request to receiving the last byte.
    #[serde(default, deserialize_with = "null_is_default")]
    pub latency: f64,
    /// The provider's id of the response.
    #[serde(default, deserialize_with = "null_is_default")]
    pub response_id: String,
}

/// Token usage of one call, or of all calls.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// The model that was called.
    #[serde(default, deserialize_with = "null_is_default")]
    pub model: String,
    /// Tokens sent, including cached ones.
    #[serde(default, deserialize_with = "null_is_default")]
    pub prompt_tokens: u64,
    /// Tokens received.
    #[serde(default, deserialize_with = "null_is_default")]
    pub completion_tokens: u64,
    /// Tokens read from the provider's cache.
    #[serde(default, deserialize_with = "null_is_default")]
    pub cache_read_tokens: u64,
    /// Tokens written to the provider's cache.
    #[serde(default, deserialize_with = "null_is_default")]
    pub cache_write_tokens: u64,
    /// The model's context window; 0 if unknown.
    #[serde(default, deserialize_with = "null_is_default")]
    pub context_window: u64,
    /// Prompt and completion tokens of the latest call.
    #[serde(default, deserialize_with = "null_is_default")]
    pub per_turn_token: u64,
    /// The provider's id of the response; empty in totals.
    #[serde(default, deserialize_with = "null_is_default")]
    pub response_id: String,
}

impl Metrics {
    /// Returns the totals without the list of calls. Events hold only these, so that their length
    /// does not grow with the conversation.
    #[must_use]
    pub fn totals(&self) -> Self {
        Self {
            accumulated_cost: self.accumulated_cost,
            max_budget_per_task: self.max_budget_per_task,
            accumulated_token_usage: self.accumulated_token_usage.clone(),
            ..Self::default()
        }
    }

    /// Adds one call to the totals. `cost` is `None` if the price of the model is unknown.
    pub fn record(&mut self, usage: TokenUsage, cost: Option<Cost>, latency: ResponseLatency) {
        let total = &mut self.accumulated_token_usage;
        total.model.clone_from(&usage.model);
        total.prompt_tokens += usage.prompt_tokens;
        total.completion_tokens += usage.completion_tokens;
        total.cache_read_tokens += usage.cache_read_tokens;
        total.cache_write_tokens += usage.cache_write_tokens;
        total.context_window = usage.context_window;
        total.per_turn_token = usage.per_turn_token;
        self.accumulated_cost += cost.as_ref().map_or(0.0, |cost| cost.cost);
        self.costs.extend(cost);
        self.response_latencies.push(latency);
        self.token_usages.push(usage);
    }
}
