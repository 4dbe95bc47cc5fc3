//! Costs of calls: as reported by the proxy, else as configured, else as reported by the provider,
//! else by the built-in price table.
//!
//! A model that is not in the table has no price, because an invented cost would break every
//! budget.

use std::sync::atomic::{AtomicBool, Ordering};

use genai_prices::{Calculator, PriceRequest, Usage, UsageKey};
use protocol::metrics::TokenUsage;

use crate::config::LlmConfig;

/// Prefixes with which V0's users choose a proxy. The complete name of a model follows.
const PROXIES: [&str; 2] = ["litellm_proxy/", "openrouter/"];

#[derive(Debug)]
pub(crate) struct Prices {
    model: String,
    /// Price of an input and of an output token, in US dollars.
    configured: Option<(f64, f64)>,
    /// Overrides the context window of the table.
    max_input_tokens: Option<u64>,
    /// Whether the cost of a call was known. `Relaxed` suffices: only the flag itself is shared.
    has_reported_cost: AtomicBool,
}

/// Upper bound of the length of any model's response, in tokens.
const MAX_COMPLETION_TOKENS: u64 = 128_000;

/// Costs that a response reports, in US dollars.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReportedCost {
    /// The proxy's header `x-litellm-response-cost`: the operator of the proxy knows what it
    /// charges.
    pub(crate) by_proxy: Option<f64>,
    /// In the usage, as OpenRouter reports it.
    pub(crate) by_provider: Option<f64>,
}

/// The table's cost of a call and context window of its model.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct ListPrice {
    cost: Option<f64>,
    context_window: u64,
}

/// The table's prices of a million input and output tokens, in US dollars, and the context window.
/// 0 if it is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ModelPrices {
    pub(crate) prices: Option<(f64, f64)>,
    pub(crate) context_window: u64,
}

/// Looks up the prices of short requests.
pub(crate) fn list_price(model: &str) -> ModelPrices {
    // Longer requests can cost more for each token.
    const TOKENS: u64 = 1000;
    let per_million = |usage| Some(look_up(model, &usage).cost? * (1_000_000 / TOKENS) as f64);
    let input = per_million(TokenUsage {
        prompt_tokens: TOKENS,
        ..TokenUsage::default()
    });
    let output = per_million(TokenUsage {
        completion_tokens: TOKENS,
        ..TokenUsage::default()
    });
    ModelPrices {
        prices: input.zip(output),
        context_window: look_up(model, &TokenUsage::default()).context_window,
    }
}

/// Whether the built-in price table has a model of exactly this name, with or without its provider
/// in front. The first caller waits while the table is decoded.
pub fn is_listed_model(model: &str) -> bool {
    let (provider, name) = split_provider(model);
    let providers = Calculator::bundled().providers();
    let mut providers = providers.filter(|listed| provider.is_none_or(|own| own == listed.id()));
    providers.any(|listed| listed.models().any(|model| model.id() == name))
}

/// Whether the price of the model's calls is known before they are made: from the configuration, or
/// the built-in price table.
pub fn is_price_known(config: &LlmConfig) -> bool {
    Prices::new(config).max_cost(1, None) > 0.0
}

impl Prices {
    pub(crate) fn new(config: &LlmConfig) -> Self {
        let configured = config
            .input_cost_per_token
            .zip(config.output_cost_per_token);
        Self {
            model: config.model.clone(),
            configured,
            max_input_tokens: config.max_input_tokens,
            has_reported_cost: AtomicBool::new(false),
        }
    }

    /// Returns the cost of a call, and its usage with the model and the context window.
    pub(crate) async fn price_call(
        &self,
        mut usage: TokenUsage,
        reported: ReportedCost,
    ) -> (TokenUsage, Option<f64>) {
        let listed = self.look_up(&usage).await;
        let configured = self.configured(&usage);
        usage.model.clone_from(&self.model);
        usage.context_window = self.max_input_tokens.unwrap_or(listed.context_window);
        let costs = [
            reported.by_proxy,
            configured,
            reported.by_provider,
            listed.cost,
        ];
        let is_cost = |cost: &f64| cost.is_finite() && *cost >= 0.0;
        let cost = costs.into_iter().flatten().find(is_cost);
        if cost.is_some_and(|cost| cost > 0.0) {
            self.has_reported_cost.store(true, Ordering::Relaxed);
        }
        (usage, cost)
    }

    /// Returns the maximum cost of a call, in US dollars. Infinite if only the provider knows its
    /// prices. The first caller waits while the table is decoded.
    pub(crate) fn max_cost(&self, prompt_tokens: u64, max_completion_tokens: Option<u64>) -> f64 {
        let completion_tokens = max_completion_tokens.unwrap_or(MAX_COMPLETION_TOKENS);
        let uncached = TokenUsage {
            prompt_tokens,
            completion_tokens,
            ..TokenUsage::default()
        };
        // Writing to the cache can cost more than reading the prompt.
        let cached = TokenUsage {
            cache_write_tokens: prompt_tokens,
            ..uncached.clone()
        };
        let costs = |usage| {
            self.configured(usage)
                .or_else(|| look_up(&self.model, usage).cost)
        };
        match [uncached, cached].iter().filter_map(costs).reduce(f64::max) {
            Some(cost) => cost,
            None if self.has_reported_cost.load(Ordering::Relaxed) => f64::INFINITY,
            None => 0.0,
        }
    }

    /// Returns the maximum number of tokens of a request that leaves room for a response. `None` if
    /// the context window is unknown.
    pub(crate) async fn max_request_tokens(&self, completion_tokens: u64) -> Option<u64> {
        if self.max_input_tokens.is_some() {
            return self.max_input_tokens;
        }
        let window = self.look_up(&TokenUsage::default()).await.context_window;
        (window > 0).then(|| window.saturating_sub(completion_tokens))
    }

    fn configured(&self, usage: &TokenUsage) -> Option<f64> {
        let (input, output) = self.configured?;
        Some(usage.prompt_tokens as f64 * input + usage.completion_tokens as f64 * output)
    }

    /// Looks up the price. The first look-up decodes the table, which blocks a thread.
    async fn look_up(&self, usage: &TokenUsage) -> ListPrice {
        static IS_DECODED: AtomicBool = AtomicBool::new(false);
        if !IS_DECODED.load(Ordering::Relaxed) {
            drop(tokio::task::spawn_blocking(Calculator::bundled).await);
            IS_DECODED.store(true, Ordering::Relaxed);
        }
        look_up(&self.model, usage)
    }
}

/// Looks up a price by provider and name, as in `anthropic/claude-…`, or by the name alone. There
/// is none for an unknown provider such as `ollama/llama3`, even if another provider has a price
/// for the same model.
fn look_up(model: &str, usage: &TokenUsage) -> ListPrice {
    let behind_proxy = PROXIES
        .into_iter()
        .find_map(|proxy| model.strip_prefix(proxy));
    let name = behind_proxy.unwrap_or(model);
    let (provider, name) = split_provider(name);
    let counts = counts(usage);
    let mut request = PriceRequest::new(name, &counts);
    request.provider_id = provider;
    let table = Calculator::bundled();
    let Ok(price) = table.calculate(&request) else {
        tracing::debug!(model, "the model is not in the price table");
        return ListPrice::default();
    };
    let models = table
        .providers()
        .filter(|provider| provider.id() == price.provider_id);
    let window = models
        .flat_map(|provider| provider.models())
        .find(|model| model.id() == price.model_id);
    ListPrice {
        cost: Some(price.total_price),
        context_window: window
            .and_then(|model| model.context_window())
            .unwrap_or_default(),
    }
}

/// Splits the provider from a name. A `responses/` between them chooses the wire.
fn split_provider(model: &str) -> (Option<&str>, &str) {
    match model.split_once('/') {
        Some((provider, name)) => (
            Some(provider),
            name.strip_prefix("responses/").unwrap_or(name),
        ),
        None => (None, model),
    }
}

/// Converts a usage. The input tokens include the cached ones in both.
fn counts(usage: &TokenUsage) -> Usage {
    Usage::from([
        (UsageKey::INPUT_TOKENS, usage.prompt_tokens as f64),
        (UsageKey::CACHE_READ_TOKENS, usage.cache_read_tokens as f64),
        (
            UsageKey::CACHE_WRITE_TOKENS,
            usage.cache_write_tokens as f64,
        ),
        (UsageKey::OUTPUT_TOKENS, usage.completion_tokens as f64),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage() -> TokenUsage {
        TokenUsage {
            prompt_tokens: 1_000_000,
            completion_tokens: 100_000,
            ..TokenUsage::default()
        }
    }

    fn cost(model: &str) -> Option<f64> {
        look_up(model, &usage()).cost
    }

    async fn cost_of(configured: bool, usage: TokenUsage, reported: ReportedCost) -> Option<f64> {
        let price = configured.then_some(1e-6);
        let mut config = LlmConfig::new("gpt-4o");
        (config.input_cost_per_token, config.output_cost_per_token) = (price, price);
        Prices::new(&config).price_call(usage, reported).await.1
    }

    #[test]
    fn price_is_found_by_configured_names() {
        let expected = Some(2.5 + 1.0); // GPT-4o: $2.50 a million in, $10 out
        for model in [
            "gpt-4o",
            "openai/gpt-4o",
            "openai/responses/gpt-4o",
            "litellm_proxy/gpt-4o",
            "litellm_proxy/openai/gpt-4o",
        ] {
            assert_eq!(cost(model), expected, "{model}");
        }
        assert_eq!(look_up("gpt-4o", &usage()).context_window, 128_000);
    }

    #[test]
    fn unknown_model_has_no_price() {
        for model in [
            "no-such-model",
            "ollama/llama3",
            "openai/my-own",
            "my-company/gpt-4o",
        ] {
            assert_eq!(look_up(model, &usage()), ListPrice::default(), "{model}");
        }
    }

    #[test]
    fn cached_tokens_are_cheaper() {
        let cached = TokenUsage {
            cache_read_tokens: 900_000,
            ..usage()
        };
        assert!(look_up("gpt-4o", &cached).cost < cost("gpt-4o"));
    }

    #[tokio::test]
    async fn reported_costs_precede_the_price_table() {
        let none = ReportedCost::default();
        let provider = ReportedCost {
            by_provider: Some(7.0),
            ..none
        };
        let both = ReportedCost {
            by_proxy: Some(8.0),
            ..provider
        };
        assert_eq!(cost_of(true, usage(), both).await, Some(8.0));
        assert_eq!(
            cost_of(true, usage(), provider).await.map(f64::round),
            Some(1.0)
        );
        assert_eq!(cost_of(false, usage(), provider).await, Some(7.0));
        for invalid in [-1.0, f64::NAN, f64::INFINITY] {
            let reported = ReportedCost {
                by_proxy: Some(invalid),
                by_provider: Some(invalid),
            };
            assert_eq!(
                cost_of(false, usage(), reported).await,
                Some(3.5),
                "{invalid}"
            );
        }
        assert_eq!(cost_of(false, usage(), none).await, Some(3.5));
    }

    #[tokio::test]
    async fn no_call_costs_more_than_the_maximum() {
        let prices = |change: fn(&mut LlmConfig)| {
            let mut config = LlmConfig::new("gpt-4o");
            change(&mut config);
            Prices::new(&config)
        };
        let own = prices(|config| {
            (config.input_cost_per_token, config.output_cost_per_token) = (Some(0.25), Some(0.5));
        });
        assert_eq!(own.max_cost(1000, Some(100)), 300.0);
        let listed = prices(|_| ());
        let sent = TokenUsage {
            prompt_tokens: 1000,
            completion_tokens: 500,
            ..TokenUsage::default()
        };
        for usage in [
            sent.clone(),
            TokenUsage {
                cache_write_tokens: 1000,
                ..sent
            },
        ] {
            let (_, cost) = listed.price_call(usage, ReportedCost::default()).await;
            assert!(cost.unwrap() > 0.0 && cost.unwrap() <= listed.max_cost(1000, Some(500)));
        }
        assert!(
            listed.max_cost(1000, None) > listed.max_cost(1000, Some(500)),
            "a response of any length is possible"
        );
        let unknown = prices(|config| config.model = "my-own".into());
        assert_eq!(unknown.max_cost(1000, Some(500)), 0.0);
        let reported = ReportedCost {
            by_provider: Some(0.1),
            ..ReportedCost::default()
        };
        unknown.price_call(usage(), reported).await;
        assert_eq!(
            unknown.max_cost(1000, Some(500)),
            f64::INFINITY,
            "the provider can charge any price"
        );
    }

    #[tokio::test]
    async fn request_limit_is_configured_or_leaves_room_for_a_response() {
        let room = async |model: &str, max_input_tokens| {
            let config = LlmConfig {
                max_input_tokens,
                ..LlmConfig::new(model)
            };
            Prices::new(&config).max_request_tokens(1000).await
        };
        assert_eq!(room("gpt-4o", None).await, Some(127_000));
        assert_eq!(room("gpt-4o", Some(500)).await, Some(500));
        assert_eq!(room("my-own", None).await, None);
    }

    #[tokio::test]
    async fn usage_has_the_configured_name_of_the_model() {
        let (usage, _) = Prices::new(&LlmConfig::new("openai/gpt-4o"))
            .price_call(usage(), ReportedCost::default())
            .await;
        assert_eq!(
            (usage.model.as_str(), usage.context_window),
            ("openai/gpt-4o", 128_000)
        );
    }
}
