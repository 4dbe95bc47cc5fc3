//! The wire format of OpenAI's Responses API.
//!
//! Each request has the whole conversation, and nothing is stored at the provider:
//! `previous_response_id` would break edits and forks of a conversation, and most compatible
//! servers lack it. What the engine's message cannot represent is kept in its provider fields, and
//! is sent back unchanged: encrypted reasoning, the order of text and calls, and unknown items.

mod decode;
mod encode;
mod endpoint;
mod fold;
mod items;
mod parameters;

use engine::llm::LlmRequest;
use serde_json::{Map, Value};

use crate::config::{ConfigError, LlmConfig};
use crate::wire::decoded::{DecodeError, Decoded};
use crate::wire::{StreamFold, Wire, WireParts};
use encode::Encoder;
use fold::ResponsesFold;
pub(crate) use items::OUTPUT_FIELD;

pub(crate) fn parts(config: &LlmConfig) -> Result<WireParts, ConfigError> {
    Ok(WireParts {
        wire: Box::new(Responses {
            encoder: Encoder::new(config),
        }),
        endpoint: endpoint::endpoint(config)?,
        parameters: parameters::build_parameters(config)?,
        max_tokens: parameters::max_tokens(config),
        images_in_results: true,
    })
}

#[derive(Debug)]
struct Responses {
    encoder: Encoder,
}

impl Wire for Responses {
    fn encode(&self, request: &LlmRequest) -> Map<String, Value> {
        self.encoder.encode(request)
    }

    fn new_fold(&self) -> Box<dyn StreamFold> {
        Box::new(ResponsesFold::default())
    }

    fn decode(&self, body: Value) -> Result<Decoded, DecodeError> {
        decode::decode(body)
    }
}
