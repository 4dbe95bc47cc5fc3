//! What all wires share: one call to a provider, from the engine's request to a whole answer with its price.
//!
//! Encode the request, exchange it for a whole answer (streamed or not), decode that, price it; again if that may help.
//! Nothing is kept between calls but the connections, the names of parameters that the provider refuses, and how many
//! tokens it counted. A dropped call closes its stream, which tells the provider to stop.

mod answer;
pub(crate) mod client;
pub(crate) mod decode;
pub(crate) mod endpoint;
mod events;
mod exchange;
mod failure;
pub(crate) mod merge;
pub(crate) mod parameters;
mod pieces;
mod window;

use std::fmt;

use async_trait::async_trait;
use engine::llm::{Completion, Llm, LlmError, LlmErrorKind, LlmProgress, LlmRequest};
use reqwest::Url;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::config::{ConfigError, LlmConfig, Provider};
use crate::prices::{Prices, Stated};
use crate::retry::RetryPolicy;
use crate::{anthropic, openai};
use decode::{Decoded, Problem};
use endpoint::Endpoint;
use exchange::Exchange;
use failure::Failure;
use parameters::Parameters;
pub(crate) use pieces::Pieces;
use window::Window;

/// Stands for an image that is not sent.
pub(crate) const NO_VISION: &str = "[An image is here, but this model is shown no images.]";

/// A provider's format. Pure.
pub(crate) trait Wire: fmt::Debug + Send + Sync {
    /// The fields of a request that hold what is asked.
    fn encode(&self, request: &LlmRequest) -> Map<String, Value>;

    /// For the events of one stream.
    fn fold(&self) -> Box<dyn Fold>;

    /// From a whole body to an answer.
    fn decode(&self, body: Value) -> Result<Decoded, Problem>;
}

/// Folds the events of a stream into the body that the same answer would have had in one piece.
pub(crate) trait Fold: Send {
    /// Takes an event, and hands on what of it people may see.
    fn add(&mut self, event: Value, pieces: &mut Pieces);

    /// The stream said `[DONE]`.
    fn end(&mut self);

    /// Whether nothing at all can follow.
    fn is_done(&self) -> bool;

    /// Whether nothing but usage can follow.
    fn is_terminal(&self) -> bool;

    /// The whole body; nothing when the stream was cut.
    fn finish(self: Box<Self>) -> Option<Value>;
}

/// What differs between providers.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) wire: Box<dyn Wire>,
    pub(crate) endpoint: Endpoint,
    pub(crate) parameters: Parameters,
    /// The longest answer that is asked for, in tokens; nothing when that is the provider's to choose.
    pub(crate) max_tokens: Option<u64>,
}

/// A model behind a provider's wire: Anthropic's messages or OpenAI's chat completions, as the configuration says.
#[derive(Debug)]
pub struct ProviderLlm {
    model: String,
    wire: Box<dyn Wire>,
    parameters: Parameters,
    exchange: Exchange,
    prices: Prices,
    retry: RetryPolicy,
    max_tokens: Option<u64>,
    window: Window,
}

impl ProviderLlm {
    /// Checks the configuration; opens no connection.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(config: &LlmConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let Parts { wire, endpoint, parameters, max_tokens } = match config.provider() {
            Provider::OpenAi => openai::parts(config)?,
            Provider::Anthropic => anthropic::parts(config)?,
        };
        Ok(Self {
            model: config.model.clone(),
            wire,
            parameters,
            exchange: Exchange::new(endpoint, config.timeouts)?,
            prices: Prices::new(config),
            retry: config.retry,
            max_tokens,
            window: Window::default(),
        })
    }

    /// Where requests go.
    pub(crate) fn url(&self) -> &Url {
        self.exchange.url()
    }

    /// Refuses what clearly does not fit, before it is sent.
    async fn check_window(&self, request: &LlmRequest) -> Result<(), LlmError> {
        let Some(room) = self.prices.room(self.max_tokens.unwrap_or_default()).await else { return Ok(()) };
        let Some(tokens) = self.window.overflow(request, room) else { return Ok(()) };
        let kind = LlmErrorKind::ContextWindowExceeded;
        let detail = format!("about {tokens} tokens, where {} has room for {room}: not sent", self.model);
        Err(LlmError { kind, detail, retry_after: None })
    }

    /// One try. When the provider refuses an optional parameter by its name, that parameter is left out and the
    /// request made again at once; this ends, because each round leaves out one more.
    async fn attempt(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        loop {
            match self.ask(request, on_progress).await {
                Ok(completion) => return Ok(completion),
                Err(Failure { error, refused_parameter }) => {
                    if !refused_parameter.is_some_and(|name| self.parameters.leave_out(&name)) {
                        return Err(error);
                    }
                }
            }
        }
    }

    async fn ask(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, Failure> {
        let mut body = self.wire.encode(request);
        self.parameters.add_to(&mut body);
        let began = Instant::now();
        let answer = self.exchange.call(&body, self.wire.fold(), on_progress).await?;
        let latency = began.elapsed();
        let decoded = self.wire.decode(answer.body).map_err(|problem| self.exchange.problem(problem))?;
        let stated = Stated { by_proxy: answer.stated_cost, by_provider: decoded.stated_cost };
        let usage = match decoded.usage {
            Some(usage) => {
                self.window.counted(request, usage.prompt_tokens);
                usage
            }
            // A budget must hold there too.
            None => self.window.guess(request, &decoded.response.message),
        };
        let (usage, cost) = self.prices.settle(usage, stated).await;
        let (tokens_in, tokens_out) = (usage.prompt_tokens, usage.completion_tokens);
        tracing::debug!(?latency, tokens_in, tokens_out, cost, "received a response of the model");
        Ok(Completion { response: decoded.response, usage, cost, latency })
    }
}

#[async_trait]
impl Llm for ProviderLlm {
    fn model(&self) -> &str {
        &self.model
    }

    fn max_cost(&self, request_tokens: u64) -> f64 {
        self.prices.most(request_tokens, self.max_tokens)
    }

    async fn complete(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        let call = async {
            tracing::debug!(messages = request.messages.len(), "calling the model");
            let result = match self.check_window(request).await {
                Ok(()) => self.retry.run(on_progress, || self.attempt(request, on_progress)).await,
                Err(error) => Err(error),
            };
            result.inspect_err(|error| tracing::warn!(kind = ?error.kind, %error, "the model call failed"))
        };
        call.instrument(tracing::info_span!("model_call", model = self.model)).await
    }
}
