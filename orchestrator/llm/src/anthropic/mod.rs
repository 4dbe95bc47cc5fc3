//! The wire format of Anthropic's messages.
//!
//! What the engine's message cannot represent is kept in its provider fields, and is sent back
//! unchanged: thinking with its signature, the order of text and calls, and unknown blocks.

mod blocks;
mod decode;
mod encode;
mod fold;
mod parameters;

use engine::llm::LlmRequest;
use serde_json::{Map, Value};

use crate::config::{ConfigError, LlmConfig};
use crate::wire::decoded::{DecodeError, Decoded};
use crate::wire::endpoint::{Api, Endpoint};
use crate::wire::{StreamFold, Wire, WireParts};
pub(crate) use blocks::CONTENT_FIELD;
use encode::Encoder;
use fold::AnthropicFold;
use parameters::Thinking;

const API: Api = Api {
    base: "https://api.anthropic.com",
    path: "v1/messages",
    key: ("x-api-key", ""),
};

const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// Lets a model think between its calls, not only before the first. Models that always do ignore
/// it.
const INTERLEAVED_THINKING: (&str, &str) = ("anthropic-beta", "interleaved-thinking-2025-05-14");

pub(crate) fn parts(config: &LlmConfig) -> Result<WireParts, ConfigError> {
    let thinking = Thinking::of(config)?;
    let headers: &[_] = match thinking {
        Thinking::Disabled | Thinking::Adaptive => &[VERSION],
        Thinking::Configured | Thinking::Budget(_) => &[VERSION, INTERLEAVED_THINKING],
    };
    Ok(WireParts {
        wire: Box::new(Anthropic {
            encoder: Encoder::new(config),
        }),
        endpoint: Endpoint::new(config, &API, headers)?,
        parameters: parameters::build_parameters(config, thinking)?,
        max_tokens: Some(parameters::max_tokens(config)),
        images_in_results: true,
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

    fn new_fold(&self) -> Box<dyn StreamFold> {
        Box::new(AnthropicFold::default())
    }

    fn decode(&self, body: Value) -> Result<Decoded, DecodeError> {
        decode::decode(body)
    }
}
