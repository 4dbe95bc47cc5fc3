//! A call to a provider, independent of its wire format.
//!
//! Encodes the request, sends it, receives the response (streamed or not), decodes it and computes
//! its cost, with retries. State between calls: the connections, the wire and the parameters that
//! the provider refuses, and the ratio of its token counts to the estimates. Dropping a call closes
//! its stream, which cancels it at the provider.

pub(crate) mod client;
pub(crate) mod decoded;
pub(crate) mod endpoint;
mod events;
mod failure;
mod http_exchange;
pub(crate) mod merge;
pub(crate) mod parameters;
mod progress;
mod response;
mod selection;
mod token_estimator;

use std::fmt;

use async_trait::async_trait;
use engine::llm::{Completion, Llm, LlmError, LlmErrorKind, LlmProgress, LlmRequest, Tool};
use reqwest::Url;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::arguments::are_bounded;
use crate::config::{ConfigError, LlmConfig, Provider};
use crate::prices::{Prices, ReportedCost};
use crate::retry::RetryPolicy;
use crate::{anthropic, openai, responses};
use decoded::{DecodeError, Decoded};
use endpoint::Endpoint;
use failure::Failure;
use parameters::Parameters;
pub(crate) use progress::ProgressBuffer;
use selection::{WireClient, WireSelection};
use token_estimator::TokenEstimator;

/// Replaces an image that is not sent.
pub(crate) const NO_VISION: &str = "[An image is here, but this model is shown no images.]";

/// A wire format of providers. Pure.
pub(crate) trait Wire: fmt::Debug + Send + Sync {
    /// Encodes the messages and tools of a request.
    fn encode(&self, request: &LlmRequest) -> Map<String, Value>;

    /// Creates the fold of one stream.
    fn new_fold(&self) -> Box<dyn StreamFold>;

    /// Decodes a complete body.
    fn decode(&self, body: Value) -> Result<Decoded, DecodeError>;
}

/// Folds the events of a stream into the body of the same response without streaming.
pub(crate) trait StreamFold: Send {
    /// Adds an event, and its text to `progress`.
    fn add(&mut self, event: Value, progress: &mut ProgressBuffer);

    /// Handles the stream's `[DONE]`.
    fn end(&mut self);

    /// Whether no event can follow.
    fn is_done(&self) -> bool;

    /// Whether only usage can follow.
    fn is_terminal(&self) -> bool;

    /// Number of the values that are kept, which bounds their memory.
    fn value_count(&self) -> usize;

    /// Returns the complete body. `None` if the stream ended early.
    fn finish(self: Box<Self>) -> Option<Value>;
}

/// The parts of a [`ProviderLlm`] that depend on the provider.
#[derive(Debug)]
pub(crate) struct WireParts {
    pub(crate) wire: Box<dyn Wire>,
    pub(crate) endpoint: Endpoint,
    pub(crate) parameters: Parameters,
    /// Requested maximum length of a response, in tokens. `None` if the provider chooses it.
    pub(crate) max_tokens: Option<u64>,
    /// Whether results of tools can have images.
    pub(crate) images_in_results: bool,
}

/// Maximum size of a request to a model whose context window is unknown, in tokens: several
/// megabytes. Larger windows have to be configured.
const MAX_REQUEST_TOKENS: u64 = 2_000_000;

/// A model of a provider, called in the wire format that the configuration selects.
#[derive(Debug)]
pub struct ProviderLlm {
    model: String,
    wires: WireSelection,
    prices: Prices,
    retry: RetryPolicy,
    max_tokens: Option<u64>,
    token_estimator: TokenEstimator,
}

/// Returns the URL of a model's requests. Validates the configuration, and opens no connection.
///
/// # Errors
/// See [`ConfigError`].
pub fn request_url(config: &LlmConfig) -> Result<Url, ConfigError> {
    Ok(parts(config)?.endpoint.url)
}

fn parts(config: &LlmConfig) -> Result<WireParts, ConfigError> {
    config.validate()?;
    match config.provider() {
        Provider::OpenAi => openai::parts(config),
        Provider::OpenAiResponses => responses::parts(config),
        Provider::Anthropic => anthropic::parts(config),
    }
}

impl ProviderLlm {
    /// Validates the configuration. Opens no connection.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(config: &LlmConfig) -> Result<Self, ConfigError> {
        let (wires, max_tokens) = WireSelection::new(config)?;
        Ok(Self {
            model: config.model.clone(),
            wires,
            prices: Prices::new(config),
            retry: config.retry,
            max_tokens,
            token_estimator: TokenEstimator::default(),
        })
    }

    /// Returns the URL of requests.
    pub(crate) fn url(&self) -> &Url {
        self.wires.current().exchange.url()
    }

    /// Rejects a request that clearly exceeds the context window.
    async fn check_window(&self, request: &LlmRequest) -> Result<(), LlmError> {
        let limit = self
            .prices
            .max_request_tokens(self.max_tokens.unwrap_or_default())
            .await;
        let limit = limit.unwrap_or(MAX_REQUEST_TOKENS);
        let Some(tokens) = self.token_estimator.overflow(request, limit) else {
            return Ok(());
        };
        let kind = LlmErrorKind::ContextWindowExceeded;
        let detail = format!(
            "not sent: the request has about {tokens} tokens, and {} accepts {limit}",
            self.model
        );
        Err(LlmError {
            kind,
            detail,
            retry_after: None,
        })
    }

    /// Makes one attempt. If the provider refuses an optional parameter or reasoning of the
    /// history, repeats the request without it; if it refuses chat completions, with the Responses
    /// API. Terminates, because each repetition leaves out more, or changes the wire, which it does
    /// once.
    async fn attempt(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        loop {
            let client = self.wires.current();
            match self.send(client, request, on_progress).await {
                Ok(completion) => return Ok(completion),
                Err(Failure {
                    requires_responses: true,
                    ..
                }) if self.wires.require_responses(client) => {}
                Err(Failure {
                    error,
                    refused_parameter,
                    refused_history,
                    ..
                }) => {
                    let is_changed = refused_parameter
                        .is_some_and(|name| client.parameters.drop_parameter(&name))
                        || refused_history
                            .is_some_and(|refusal| client.history.learn(refusal, request));
                    if !is_changed {
                        return Err(error);
                    }
                }
            }
        }
    }

    async fn send(
        &self,
        client: &WireClient,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, Failure> {
        let WireClient {
            wire,
            history,
            parameters,
            exchange,
        } = client;
        let mut body = wire.encode(&history.acceptable(request));
        parameters.add_to(&mut body);
        let started = Instant::now();
        let response = exchange.call(&body, wire.new_fold(), on_progress).await?;
        let latency = started.elapsed();
        let decoding = match are_bounded(&response.body) {
            true => wire.decode(response.body),
            false => Err(DecodeError::LargeCalls),
        };
        let mut decoded = decoding.map_err(|error| exchange.decode_failure(error))?;
        history.complete(&mut decoded.response, request);
        let reported = ReportedCost {
            by_proxy: response.reported_cost,
            by_provider: decoded.reported_cost,
        };
        // No request is without tokens.
        let usage = match decoded.usage.filter(|usage| usage.prompt_tokens > 0) {
            Some(usage) => {
                self.token_estimator
                    .record_count(request, usage.prompt_tokens);
                usage
            }
            // A budget must hold for providers that do not count tokens, too.
            None => self
                .token_estimator
                .estimate_usage(request, &decoded.response.message),
        };
        let (usage, cost) = self.prices.price_call(usage, reported).await;
        let (tokens_in, tokens_out) = (usage.prompt_tokens, usage.completion_tokens);
        tracing::debug!(
            ?latency,
            tokens_in,
            tokens_out,
            cost,
            "received a response of the model"
        );
        Ok(Completion {
            response: decoded.response,
            usage,
            cost,
            latency,
        })
    }
}

#[async_trait]
impl Llm for ProviderLlm {
    fn model(&self) -> &str {
        &self.model
    }

    fn max_cost(&self, request_tokens: u64) -> f64 {
        self.prices.max_cost(request_tokens, self.max_tokens)
    }

    async fn complete(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        let call = async {
            let (messages, tools) = (request.messages.len(), request.tools.len());
            let tool_tokens = Tool::estimated_tokens(&request.tools);
            tracing::debug!(messages, tools, tool_tokens, "calling the model");
            let result = match self.check_window(request).await {
                Ok(()) => {
                    self.retry
                        .run(on_progress, || self.attempt(request, on_progress))
                        .await
                }
                Err(error) => Err(error),
            };
            result.inspect_err(
                |error| tracing::warn!(kind = ?error.kind, %error, "the model call failed"),
            )
        };
        call.instrument(tracing::info_span!("model_call", model = self.model))
            .await
    }
}
