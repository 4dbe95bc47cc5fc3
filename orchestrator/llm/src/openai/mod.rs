//! The wire format of OpenAI's chat completions, which compatible servers use too.

mod decode;
mod encode;
mod fold;
mod parameters;

use engine::llm::LlmRequest;
use serde_json::{Map, Value};

use crate::config::{ConfigError, LlmConfig};
use crate::hosts;
use crate::wire::decoded::{DecodeError, Decoded};
use crate::wire::endpoint::{Api, Endpoint};
use crate::wire::{StreamFold, Wire, WireParts};
use encode::Encoder;
use fold::OpenAiFold;
use parameters::build_parameters;

const API: Api = Api {
    base: "https://api.openai.com/v1",
    path: "chat/completions",
    key: ("authorization", "Bearer "),
};

pub(crate) fn parts(config: &LlmConfig) -> Result<WireParts, ConfigError> {
    let endpoint = endpoint(config)?;
    // OpenAI itself, not a compatible server.
    let is_openai = endpoint.url.host_str().is_some_and(hosts::is_openai);
    let encoder = Encoder::new(config);
    Ok(WireParts {
        images_in_results: encoder.has_images_in_results(),
        wire: Box::new(OpenAi { encoder }),
        parameters: build_parameters(config, is_openai)?,
        max_tokens: config.max_output_tokens,
        endpoint,
    })
}

/// Creates the endpoint. Azure requires an API version, and the key in another header.
fn endpoint(config: &LlmConfig) -> Result<Endpoint, ConfigError> {
    let mut endpoint = Endpoint::new(config, &API, &[])?;
    if let Some(version) = &config.api_version {
        endpoint
            .url
            .query_pairs_mut()
            .append_pair("api-version", version);
        if let Some(key) = &config.api_key {
            endpoint.add_key("api-key", key)?;
        }
    }
    Ok(endpoint)
}

#[derive(Debug)]
struct OpenAi {
    encoder: Encoder,
}

impl Wire for OpenAi {
    fn encode(&self, request: &LlmRequest) -> Map<String, Value> {
        self.encoder.encode(request)
    }

    fn new_fold(&self) -> Box<dyn StreamFold> {
        Box::new(OpenAiFold::default())
    }

    fn decode(&self, body: Value) -> Result<Decoded, DecodeError> {
        decode::decode(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn azure_gets_its_api_version_and_key_header() {
        let config = LlmConfig {
            base_url: Some("https://x.openai.azure.com/openai/deployments/d".into()),
            api_version: Some("2024-10-21".into()),
            api_key: Some("key-of-azure".into()),
            ..LlmConfig::new("m")
        };
        let endpoint = endpoint(&config).unwrap();
        assert_eq!(endpoint.url.query(), Some("api-version=2024-10-21"));
        assert_eq!(endpoint.headers["api-key"], "key-of-azure");
    }
}
