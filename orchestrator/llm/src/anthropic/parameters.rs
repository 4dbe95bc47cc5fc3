//! Anthropic's parameters.

use serde_json::{Map, json};

use crate::config::{ConfigError, LlmConfig};
use crate::wire::parameters::{OptionalParameter, ParameterForm, Parameters, extra_fields};

/// Default maximum length of a response, which Anthropic requires.
const DEFAULT_MAX_TOKENS: u64 = 32_000;

/// Maximum length of old models' responses.
const OLD_MAX_TOKENS: [(&str, u64); 5] = [
    ("claude-2", 4096),
    ("claude-3-opus", 4096),
    ("claude-3-sonnet", 4096),
    ("claude-3-haiku", 4096),
    ("claude-3-5", 8192),
];

/// Minimum thinking budget that Anthropic accepts.
const MIN_THINKING_TOKENS: u64 = 1024;

/// Thinking budgets of reasoning efforts. Any other effort has the maximum.
const THINKING_TOKENS: [(&str, u64); 3] = [("minimal", MIN_THINKING_TOKENS), ("low", 2048), ("medium", 8192)];
const MAX_THINKING_TOKENS: u64 = 24_000;

/// Returns the requested maximum length of a response, in tokens.
pub(super) fn max_tokens(config: &LlmConfig) -> u64 {
    let old = OLD_MAX_TOKENS.into_iter().find(|(name, _)| config.wire_model().contains(name));
    config.max_output_tokens.unwrap_or(old.map_or(DEFAULT_MAX_TOKENS, |(_, tokens)| tokens))
}

/// Whether the request enables thinking.
pub(super) fn is_thinking_enabled(config: &LlmConfig) -> Result<bool, ConfigError> {
    Ok(match extra_fields(config)?.get("thinking") {
        Some(thinking) => thinking["type"] != "disabled",
        None => thinking_budget(config).is_some(),
    })
}

/// Builds the parameters. Anthropic rejects sampling parameters if thinking is enabled.
pub(super) fn build_parameters(config: &LlmConfig, is_thinking: bool) -> Result<Parameters, ConfigError> {
    let required = Map::from_iter([("max_tokens".to_owned(), max_tokens(config).into())]);
    let optional = if is_thinking { thinking(config).into_iter().collect() } else { sampling(config) };
    let stop = (!config.stop.is_empty()).then(|| json!({ "stop_sequences": config.stop }));
    let stop = stop.map(|stop| vec![ParameterForm::new("stop_sequences", stop)]);
    let optional = optional.into_iter().chain(stop).collect();
    Parameters::new(config, &["messages", "tools", "system"], required, optional)
}

fn sampling(config: &LlmConfig) -> Vec<OptionalParameter> {
    config.sampling().map(|(name, value)| vec![ParameterForm::new(name, json!({ (name): value }))]).into()
}

/// Returns the parameters of thinking: with a budget, or with an effort for models that refuse a budget.
fn thinking(config: &LlmConfig) -> Option<OptionalParameter> {
    let budget = thinking_budget(config)?;
    Some(vec![
        ParameterForm::new(
            "thinking.type.enabled",
            json!({ "thinking": { "type": "enabled", "budget_tokens": budget } }),
        ),
        ParameterForm::new(
            "thinking",
            json!({ "thinking": { "type": "adaptive" }, "output_config": { "effort": config.reasoning_effort } }),
        ),
    ])
}

/// Returns the thinking budget: at most half of the response. `None` if thinking is disabled or the budget is too small.
fn thinking_budget(config: &LlmConfig) -> Option<u64> {
    let effort =
        config.reasoning_effort.as_deref().filter(|effort| !matches!(*effort, "" | "none" | "disable"))?;
    let requested = THINKING_TOKENS
        .into_iter()
        .find(|(word, _)| *word == effort)
        .map_or(MAX_THINKING_TOKENS, |(_, tokens)| tokens);
    Some(requested.min(max_tokens(config) / 2)).filter(|budget| *budget >= MIN_THINKING_TOKENS)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn parameters(change: impl FnOnce(&mut LlmConfig)) -> Parameters {
        let mut config = LlmConfig::new("anthropic/claude-x");
        change(&mut config);
        build_parameters(&config, is_thinking_enabled(&config).unwrap()).unwrap()
    }

    fn sent(parameters: &Parameters) -> Value {
        let mut body = Map::new();
        parameters.add_to(&mut body);
        Value::Object(body)
    }

    #[test]
    fn maximum_length_is_always_sent() {
        let expected =
            json!({ "model": "claude-x", "stream": true, "max_tokens": 32_000, "temperature": 0.0 });
        assert_eq!(sent(&parameters(|_| ())), expected);
        let old = sent(&parameters(|config| config.model = "anthropic/claude-3-5-haiku".into()));
        assert_eq!(old["max_tokens"], 8192);
        assert_eq!(sent(&parameters(|config| config.max_output_tokens = Some(7)))["max_tokens"], 7);
    }

    #[test]
    fn unsupported_sampling_parameters_are_not_sent() {
        let sent = |model: &str| {
            let sent = sent(&parameters(|config| {
                (config.model, config.top_p) = (model.into(), Some(0.5));
            }));
            (sent.get("temperature").is_some(), sent.get("top_p").is_some())
        };
        assert_eq!(sent("claude-3-7-sonnet"), (true, true));
        assert_eq!(sent("anthropic/claude-opus-4-1"), (true, false));
        assert_eq!(sent("anthropic/claude-opus-4-7"), (false, false));
    }

    #[test]
    fn temperature_is_not_sent_when_thinking_is_enabled() {
        let parameters = parameters(|config| {
            config.reasoning_effort = Some("medium".into());
            config.top_k = Some(5);
        });
        let enabled = json!({ "type": "enabled", "budget_tokens": 8192 });
        let expected =
            json!({ "model": "claude-x", "stream": true, "max_tokens": 32_000, "thinking": enabled });
        assert_eq!(sent(&parameters), expected);
        assert!(parameters.drop_parameter("thinking.type.enabled"));
        let sent = sent(&parameters);
        assert_eq!(
            (&sent["thinking"], &sent["output_config"]),
            (&json!({ "type": "adaptive" }), &json!({ "effort": "medium" }))
        );
    }

    #[test]
    fn thinking_is_disabled_when_the_budget_is_too_small() {
        let budget = |effort: &str, max| {
            let sent = sent(&parameters(|config| {
                config.reasoning_effort = Some(effort.into());
                config.max_output_tokens = max;
            }));
            sent["thinking"]["budget_tokens"].as_u64()
        };
        assert_eq!(budget("high", None), Some(16_000));
        assert_eq!(budget("high", Some(100_000)), Some(MAX_THINKING_TOKENS));
        assert_eq!((budget("low", Some(2000)), budget("none", None)), (None, None));
    }

    #[test]
    fn thinking_of_the_user_overrides_the_effort() {
        let thinking = |kind: &str| {
            sent(&parameters(|config| {
                config.reasoning_effort = Some("high".into());
                config.completion_kwargs.insert("thinking".into(), json!({ "type": kind }));
            }))
        };
        assert_eq!(thinking("adaptive")["thinking"], json!({ "type": "adaptive" }));
        assert_eq!(thinking("adaptive").get("temperature"), None);
        assert_eq!(thinking("disabled")["thinking"], json!({ "type": "disabled" }));
        assert_eq!(thinking("disabled")["temperature"], 0.0);
    }
}
