//! The wire of a model's calls. It changes once, when the provider refuses chat completions and
//! names the Responses API.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::http_exchange::HttpExchange;
use super::parameters::Parameters;
use super::{Wire, WireParts, parts};
use crate::config::{ConfigError, LlmConfig, Provider};
use crate::history::History;

/// A wire with its endpoint, ready for calls.
#[derive(Debug)]
pub(super) struct WireClient {
    pub(super) wire: Box<dyn Wire>,
    pub(super) history: History,
    pub(super) parameters: Parameters,
    pub(super) exchange: HttpExchange,
}

#[derive(Debug)]
pub(super) struct WireSelection {
    configured: WireClient,
    /// `None` if the configured wire is not chat completions, or if `completion_kwargs` do not fit
    /// the Responses API.
    responses: Option<WireClient>,
    requires_responses: AtomicBool,
}

impl WireSelection {
    /// Returns the maximum length of a response of the configured wire, too.
    pub(super) fn new(config: &LlmConfig) -> Result<(Self, Option<u64>), ConfigError> {
        let WireParts {
            wire,
            endpoint,
            parameters,
            max_tokens,
            images_in_results,
        } = parts(config)?;
        let address = endpoint.address();
        let exchange = HttpExchange::new(endpoint, config)?;
        let is_chat = config.provider() == Provider::OpenAi;
        let responses = is_chat
            .then(|| parts(&config.with_responses()).ok())
            .flatten();
        let responses = responses.map(|parts| WireClient {
            history: History::new(config, &address, parts.images_in_results),
            exchange: exchange.with_endpoint(parts.endpoint),
            wire: parts.wire,
            parameters: parts.parameters,
        });
        let history = History::new(config, &address, images_in_results);
        let configured = WireClient {
            wire,
            history,
            parameters,
            exchange,
        };
        Ok((
            Self {
                configured,
                responses,
                requires_responses: AtomicBool::new(false),
            },
            max_tokens,
        ))
    }

    /// Returns the wire for the next request.
    pub(super) fn current(&self) -> &WireClient {
        match &self.responses {
            Some(responses) if self.requires_responses.load(Ordering::Relaxed) => responses,
            _ => &self.configured,
        }
    }

    /// Records that the provider requires the Responses API. Returns whether the next request uses
    /// another wire than `refused`.
    pub(super) fn require_responses(&self, refused: &WireClient) -> bool {
        let is_other = |responses: &WireClient| !ptr::eq(responses, refused);
        if !self.responses.as_ref().is_some_and(is_other) {
            return false;
        }
        if !self.requires_responses.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the provider refuses chat completions for the model; continuing with the Responses API"
            );
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selection(change: impl FnOnce(&mut LlmConfig)) -> WireSelection {
        let mut config = LlmConfig::new("m");
        change(&mut config);
        WireSelection::new(&config).unwrap().0
    }

    /// Concurrent calls may be refused before one of them has changed the wire.
    #[test]
    fn each_refused_call_is_repeated_once() {
        let wires = selection(|_| ());
        let chat = wires.current();
        assert!(chat.exchange.url().path().ends_with("/chat/completions"));
        assert!(wires.require_responses(chat));
        assert!(wires.require_responses(chat));
        let responses = wires.current();
        assert!(responses.exchange.url().path().ends_with("/responses"));
        assert!(!wires.require_responses(responses));
    }

    #[test]
    fn other_wires_stay() {
        for model in ["anthropic/claude-x", "openai/responses/m"] {
            let wires = selection(|config| config.model = model.into());
            assert!(!wires.require_responses(wires.current()), "{model}");
        }
        let wires =
            selection(|config| drop(config.completion_kwargs.insert("input".into(), json!([]))));
        assert!(!wires.require_responses(wires.current()));
    }
}
