//! What a call cost: as the proxy says, else as configured, else as the provider says, else by the table of prices.
//!
//! A model that the table does not know has no price, and no call without a count of tokens has one: a cost that is
//! made up would make every budget wrong. Nothing is fetched; the table is the one that was built in.

use std::sync::atomic::{AtomicBool, Ordering};

use genai_prices::{Calculator, PriceRequest, Usage, UsageKey};
use protocol::metrics::TokenUsage;

use crate::config::LlmConfig;

/// Prefixes by which V0's users choose a proxy; what follows is a model's whole name.
const PROXIES: [&str; 2] = ["litellm_proxy/", "openrouter/"];

#[derive(Debug)]
pub(crate) struct Prices {
    model: String,
    /// In US dollars, of a token sent and of one received.
    configured: Option<(f64, f64)>,
    /// Overrides the table's window.
    max_input_tokens: Option<u64>,
    /// A call came with a price. Only the flag itself is shared.
    has_charged: AtomicBool,
}

/// What no model's answer is longer than, in tokens.
const LONGEST_ANSWER: u64 = 128_000;

/// Prices that came with the answer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stated {
    /// `x-litellm-response-cost`: whoever runs the proxy knows what it charges.
    pub(crate) by_proxy: Option<f64>,
    /// In the usage, as OpenRouter does.
    pub(crate) by_provider: Option<f64>,
}

/// What the table says.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Listed {
    cost: Option<f64>,
    context_window: u64,
}

impl Prices {
    pub(crate) fn new(config: &LlmConfig) -> Self {
        let configured = config.input_cost_per_token.zip(config.output_cost_per_token);
        Self {
            model: config.model.clone(),
            configured,
            max_input_tokens: config.max_input_tokens,
            has_charged: AtomicBool::new(false),
        }
    }

    /// The usage with the model and its window, and the price.
    pub(crate) async fn settle(&self, mut usage: TokenUsage, stated: Stated) -> (TokenUsage, Option<f64>) {
        let listed = self.look_up(&usage).await;
        let own = self.configured(&usage);
        usage.model.clone_from(&self.model);
        usage.context_window = self.max_input_tokens.unwrap_or(listed.context_window);
        let cost = stated.by_proxy.or(own).or(stated.by_provider).or(listed.cost);
        let cost = cost.filter(|cost| cost.is_finite() && *cost >= 0.0);
        if cost.is_some_and(|cost| cost > 0.0) {
            self.has_charged.store(true, Ordering::Relaxed);
        }
        (usage, cost)
    }

    /// What a call can cost at most whose request has at most so many tokens and whose answer at most `answer`, in US
    /// dollars. What only the provider knows has no bound, once it was seen. Whoever looks the table up first waits while it
    /// is decoded; the call before this one has done so.
    pub(crate) fn most(&self, request: u64, answer: Option<u64>) -> f64 {
        let completion_tokens = answer.unwrap_or(LONGEST_ANSWER);
        let sent = TokenUsage { prompt_tokens: request, completion_tokens, ..TokenUsage::default() };
        // What a provider keeps costs more than what it only reads.
        let kept = TokenUsage { cache_write_tokens: request, ..sent.clone() };
        let costs = |usage| self.configured(usage).or_else(|| listed(&self.model, usage).cost);
        match [sent, kept].iter().filter_map(costs).reduce(f64::max) {
            Some(most) => most,
            None if self.has_charged.load(Ordering::Relaxed) => f64::INFINITY,
            None => 0.0,
        }
    }

    /// How many tokens a request may have when `answer` are kept free for what comes; nothing when no window is known.
    pub(crate) async fn room(&self, answer: u64) -> Option<u64> {
        if self.max_input_tokens.is_some() {
            return self.max_input_tokens;
        }
        let window = self.look_up(&TokenUsage::default()).await.context_window;
        (window > 0).then(|| window.saturating_sub(answer))
    }

    fn configured(&self, usage: &TokenUsage) -> Option<f64> {
        let (input, output) = self.configured?;
        Some(usage.prompt_tokens as f64 * input + usage.completion_tokens as f64 * output)
    }

    /// Not on the runtime's threads: the first look-up decodes the whole table.
    async fn look_up(&self, usage: &TokenUsage) -> Listed {
        let (model, usage) = (self.model.clone(), usage.clone());
        tokio::task::spawn_blocking(move || listed(&model, &usage)).await.unwrap_or_default()
    }
}

/// By provider and name, as in `anthropic/claude-…`; without a provider the name alone has to be known. A prefix that
/// is no provider's, as in `ollama/llama3`, is no price: the same model elsewhere has one.
fn listed(model: &str, usage: &TokenUsage) -> Listed {
    let behind_proxy = PROXIES.into_iter().find_map(|proxy| model.strip_prefix(proxy));
    let name = behind_proxy.unwrap_or(model);
    let (provider, name) = match name.split_once('/') {
        Some((provider, name)) => (Some(provider), name),
        None => (None, name),
    };
    let counts = counts(usage);
    let mut request = PriceRequest::new(name, &counts);
    request.provider_id = provider;
    let table = Calculator::bundled();
    let Ok(price) = table.calculate(&request) else {
        tracing::debug!(model, "the table of prices does not know the model");
        return Listed::default();
    };
    let models = table.providers().filter(|provider| provider.id() == price.provider_id);
    let window = models.flat_map(|provider| provider.models()).find(|model| model.id() == price.model_id);
    Listed {
        cost: Some(price.total_price),
        context_window: window.and_then(|model| model.context_window()).unwrap_or_default(),
    }
}

/// The tokens sent include the cached ones, in the table's words as in ours.
fn counts(usage: &TokenUsage) -> Usage {
    Usage::from([
        (UsageKey::INPUT_TOKENS, usage.prompt_tokens as f64),
        (UsageKey::CACHE_READ_TOKENS, usage.cache_read_tokens as f64),
        (UsageKey::CACHE_WRITE_TOKENS, usage.cache_write_tokens as f64),
        (UsageKey::OUTPUT_TOKENS, usage.completion_tokens as f64),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage() -> TokenUsage {
        TokenUsage { prompt_tokens: 1_000_000, completion_tokens: 100_000, ..TokenUsage::default() }
    }

    fn cost(model: &str) -> Option<f64> {
        listed(model, &usage()).cost
    }

    async fn settled(configured: bool, usage: TokenUsage, stated: Stated) -> Option<f64> {
        let price = configured.then_some(1e-6);
        let mut config = LlmConfig::new("gpt-4o");
        (config.input_cost_per_token, config.output_cost_per_token) = (price, price);
        Prices::new(&config).settle(usage, stated).await.1
    }

    #[test]
    fn names_are_found_as_users_write_them() {
        let expected = Some(2.5 + 1.0); // GPT-4o: $2.50 a million in, $10 out
        for model in ["gpt-4o", "openai/gpt-4o", "litellm_proxy/gpt-4o", "litellm_proxy/openai/gpt-4o"] {
            assert_eq!(cost(model), expected, "{model}");
        }
        assert_eq!(listed("gpt-4o", &usage()).context_window, 128_000);
    }

    #[test]
    fn an_unknown_model_has_no_price() {
        for model in ["no-such-model", "ollama/llama3", "openai/my-own", "my-company/gpt-4o"] {
            assert_eq!(listed(model, &usage()), Listed::default(), "{model}");
        }
    }

    #[test]
    fn cached_tokens_are_cheaper() {
        let cached = TokenUsage { cache_read_tokens: 900_000, ..usage() };
        assert!(listed("gpt-4o", &cached).cost < cost("gpt-4o"));
    }

    #[tokio::test]
    async fn the_nearest_to_the_bill_counts() {
        let none = Stated::default();
        let provider = Stated { by_provider: Some(7.0), ..none };
        let both = Stated { by_proxy: Some(8.0), ..provider };
        assert_eq!(settled(true, usage(), both).await, Some(8.0));
        assert_eq!(settled(true, usage(), provider).await.map(f64::round), Some(1.0));
        assert_eq!(settled(false, usage(), provider).await, Some(7.0));
        assert_eq!(settled(false, usage(), none).await, Some(3.5));
    }

    #[tokio::test]
    async fn no_call_costs_more_than_the_most() {
        let prices = |change: fn(&mut LlmConfig)| {
            let mut config = LlmConfig::new("gpt-4o");
            change(&mut config);
            Prices::new(&config)
        };
        let own = prices(|config| {
            (config.input_cost_per_token, config.output_cost_per_token) = (Some(0.25), Some(0.5));
        });
        assert_eq!(own.most(1000, Some(100)), 300.0);
        let listed = prices(|_| ());
        let sent = TokenUsage { prompt_tokens: 1000, completion_tokens: 500, ..TokenUsage::default() };
        for usage in [sent.clone(), TokenUsage { cache_write_tokens: 1000, ..sent }] {
            let (_, cost) = listed.settle(usage, Stated::default()).await;
            assert!(cost.unwrap() > 0.0 && cost.unwrap() <= listed.most(1000, Some(500)));
        }
        assert!(listed.most(1000, None) > listed.most(1000, Some(500)), "any answer is possible");
        let unknown = prices(|config| config.model = "my-own".into());
        assert_eq!(unknown.most(1000, Some(500)), 0.0);
        let stated = Stated { by_provider: Some(0.1), ..Stated::default() };
        unknown.settle(usage(), stated).await;
        assert_eq!(unknown.most(1000, Some(500)), f64::INFINITY, "whoever charges can charge anything");
    }

    #[tokio::test]
    async fn the_room_is_as_configured_or_what_the_answer_leaves() {
        let room = async |model: &str, max_input_tokens| {
            let config = LlmConfig { max_input_tokens, ..LlmConfig::new(model) };
            Prices::new(&config).room(1000).await
        };
        assert_eq!(room("gpt-4o", None).await, Some(127_000));
        assert_eq!(room("gpt-4o", Some(500)).await, Some(500));
        assert_eq!(room("my-own", None).await, None);
    }

    #[tokio::test]
    async fn the_usage_names_the_model_as_configured() {
        let (usage, _) =
            Prices::new(&LlmConfig::new("openai/gpt-4o")).settle(usage(), Stated::default()).await;
        assert_eq!((usage.model.as_str(), usage.context_window), ("openai/gpt-4o", 128_000));
    }
}
