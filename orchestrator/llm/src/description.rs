//! What is known about a model before it is called, for people.

use std::fmt;

use crate::config::{LlmConfig, Provider};
use crate::models::{self, MissingFeature};
use crate::prices;

/// Description of a configured model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelDescription {
    /// The wire format, and why it is chosen.
    pub wire: String,
    /// In tokens. `None` if it is unknown: then a request that is too long is condensed once the
    /// provider refuses it.
    pub context_window: Option<u64>,
    /// Prices of a million input and output tokens, in US dollars. `None` if they are unknown: then
    /// no budget holds.
    pub prices: Option<(f64, f64)>,
    /// What the model is known to lack or to refuse. A parameter that is refused in spite of this
    /// is left out then.
    pub missing: Vec<&'static str>,
}

/// Describes a model. Waits while the price table is decoded.
pub fn describe(config: &LlmConfig) -> ModelDescription {
    let (provider, reason) = config.provider_with_reason();
    let wire = match provider {
        Provider::OpenAi => "OpenAI chat completions",
        Provider::OpenAiResponses => "OpenAI Responses",
        Provider::Anthropic => "Anthropic messages",
    };
    let listed = prices::list_price(&config.model);
    let configured = config
        .input_cost_per_token
        .zip(config.output_cost_per_token);
    let configured = configured.map(|(input, output)| (input * 1e6, output * 1e6));
    let window = config.max_input_tokens.unwrap_or(listed.context_window);
    let missing = models::missing_features(&config.model);
    ModelDescription {
        wire: format!("{wire}, {reason}"),
        context_window: Some(window).filter(|window| *window > 0),
        prices: configured.or(listed.prices),
        missing: missing.iter().map(|feature| name(*feature)).collect(),
    }
}

fn name(feature: MissingFeature) -> &'static str {
    match feature {
        MissingFeature::Calls => "tool calls (emulated in the text)",
        MissingFeature::Vision => "images",
        MissingFeature::Sampling => "temperature, top_p and top_k",
        MissingFeature::TwoSamplers => "temperature together with top_p",
        MissingFeature::Stop => "stop sequences",
    }
}

impl fmt::Display for ModelDescription {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "wire format: {}", self.wire)?;
        match self.context_window {
            Some(window) => write!(formatter, "; context window: {window} tokens")?,
            None => write!(formatter, "; context window unknown (max_input_tokens)")?,
        }
        match self.prices {
            Some((input, output)) => {
                write!(
                    formatter,
                    "; ${input:.2} and ${output:.2} per million input and output tokens"
                )?;
            }
            None => write!(
                formatter,
                "; prices unknown (input_cost_per_token, output_cost_per_token)"
            )?,
        }
        match self.missing.as_slice() {
            [] => Ok(()),
            missing => write!(formatter, "; not sent: {}", missing.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_window_prices_and_refusals_are_described() {
        let text = |model: &str| describe(&LlmConfig::new(model)).to_string();
        let gpt = text("gpt-4o");
        let expected = "wire format: OpenAI chat completions, as most servers; context window: 128000 tokens; \
                        $2.50 and $10.00 per million input and output tokens";
        assert_eq!(gpt, expected);
        let responses = text("gpt-6-luna");
        assert!(
            responses.starts_with("wire format: OpenAI Responses, by the name"),
            "{responses}"
        );
        assert!(
            responses.ends_with("; not sent: temperature, top_p and top_k, stop sequences"),
            "{responses}"
        );
        let mut own = LlmConfig {
            max_input_tokens: Some(7),
            ..LlmConfig::new("anthropic/own")
        };
        (own.input_cost_per_token, own.output_cost_per_token) = (Some(1e-6), Some(2e-6));
        let expected = "wire format: Anthropic messages, by the name; context window: 7 tokens; \
                        $1.00 and $2.00 per million input and output tokens";
        assert_eq!(describe(&own).to_string(), expected);
        let unknown = text("my-own");
        assert!(
            unknown.contains("context window unknown") && unknown.contains("prices unknown"),
            "{unknown}"
        );
    }
}
