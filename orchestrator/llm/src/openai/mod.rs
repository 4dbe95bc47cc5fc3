//! OpenAI's chat completions, as every compatible server speaks them.
//!
//! One call: encode the request, exchange it for a whole answer (streamed or not), decode that, price it; again if
//! that may help. Nothing is kept between calls but the connections and the names of parameters that the provider
//! refuses. A dropped call closes its stream, which tells the provider to stop.

mod answer;
pub(crate) mod client;
mod decode;
mod encode;
mod endpoint;
mod events;
mod exchange;
mod failure;
mod fold;
mod parameters;

use async_trait::async_trait;
use engine::llm::{Completion, Llm, LlmError, LlmProgress, LlmRequest};
use tokio::time::Instant;

use crate::config::{ConfigError, LlmConfig};
use crate::prices::{Prices, Stated};
use crate::retry::RetryPolicy;
use decode::decode;
use encode::Encoder;
use endpoint::Endpoint;
use exchange::Exchange;
use failure::Failure;
use parameters::Parameters;

/// A model behind OpenAI's wire.
#[derive(Debug)]
pub struct OpenAiLlm {
    model: String,
    encoder: Encoder,
    parameters: Parameters,
    exchange: Exchange,
    prices: Prices,
    retry: RetryPolicy,
}

impl OpenAiLlm {
    /// Checks the configuration; opens no connection.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(config: &LlmConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let endpoint = Endpoint::new(config)?;
        Ok(Self {
            model: config.model.clone(),
            encoder: Encoder::new(config),
            parameters: Parameters::new(config, endpoint.is_openai())?,
            exchange: Exchange::new(endpoint, config.timeouts)?,
            prices: Prices::new(config),
            retry: config.retry,
        })
    }

    /// One try. When the provider refuses an optional parameter by its name, that parameter is left out and the
    /// request made again at once; this ends, because each round leaves out one more.
    async fn attempt(&self, request: &LlmRequest) -> Result<Completion, LlmError> {
        loop {
            match self.ask(request).await {
                Ok(completion) => return Ok(completion),
                Err(Failure { error, refused_parameter }) => {
                    if !refused_parameter.is_some_and(|name| self.parameters.leave_out(&name)) {
                        return Err(error);
                    }
                }
            }
        }
    }

    async fn ask(&self, request: &LlmRequest) -> Result<Completion, Failure> {
        let mut body = self.encoder.encode(request);
        self.parameters.add_to(&mut body);
        let began = Instant::now();
        let answer = self.exchange.call(&body).await?;
        let latency = began.elapsed();
        let decoded = decode(answer.body).map_err(|problem| self.exchange.problem(problem))?;
        let stated = Stated { by_proxy: answer.stated_cost, by_provider: decoded.stated_cost };
        let (usage, cost) = self.prices.settle(decoded.usage, stated).await;
        Ok(Completion { response: decoded.response, usage, cost, latency })
    }
}

#[async_trait]
impl Llm for OpenAiLlm {
    fn model(&self) -> &str {
        &self.model
    }

    async fn complete(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        self.retry.run(on_progress, || self.attempt(request)).await
    }
}
