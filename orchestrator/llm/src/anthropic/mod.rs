//! Anthropic's messages.
//!
//! An answer is kept in OpenAI's shape, as the engine wants it. What that shape cannot hold (thinking with its signature,
//! the order of text and calls, blocks that we do not know) is kept beside it as it came, and goes back as it came.

mod blocks;
mod decode;
mod encode;
mod fold;
mod parameters;

use engine::llm::LlmRequest;
use serde_json::{Map, Value};

use crate::config::{ConfigError, LlmConfig};
use crate::wire::decode::{Decoded, Problem};
use crate::wire::endpoint::{Api, Endpoint};
use crate::wire::{Fold, Parts, Wire};
pub(crate) use blocks::CONTENT;
use encode::Encoder;
use fold::AnthropicFold;

const API: Api = Api { base: "https://api.anthropic.com", path: "v1/messages", key: ("x-api-key", "") };

const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// Lets a model think between its calls, not only before the first. Those that always do ignore it.
const INTERLEAVED: (&str, &str) = ("anthropic-beta", "interleaved-thinking-2025-05-14");

pub(crate) fn parts(config: &LlmConfig) -> Result<Parts, ConfigError> {
    let thinks = parameters::thinks(config)?;
    let headers: &[_] = if thinks { &[VERSION, INTERLEAVED] } else { &[VERSION] };
    Ok(Parts {
        wire: Box::new(Anthropic { encoder: Encoder::new(config) }),
        endpoint: Endpoint::new(config, &API, headers)?,
        parameters: parameters::parameters_of(config, thinks)?,
        max_tokens: Some(parameters::max_tokens(config)),
    })
}

#[derive(Debug)]
struct Anthropic {
    encoder: Encoder,
}

impl Wire for Anthropic {
    fn encode(&self, request: &LlmRequest) -> Map<String, Value> {
        self.encoder.encode(request)
    }

    fn fold(&self) -> Box<dyn Fold> {
        Box::new(AnthropicFold::default())
    }

    fn decode(&self, body: Value) -> Result<Decoded, Problem> {
        decode::decode(body)
    }
}
