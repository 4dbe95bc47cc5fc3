//! Anthropic's names of the fields beside what is asked.

use serde_json::{Map, json};

use crate::config::{ConfigError, LlmConfig};
use crate::wire::parameters::{Form, Optional, Parameters, extra_fields};

/// The longest answer has to be said. Models that are no longer made know less; all others this.
const MAX_TOKENS: u64 = 32_000;
const OLD_MAX_TOKENS: [(&str, u64); 5] = [
    ("claude-2", 4096),
    ("claude-3-opus", 4096),
    ("claude-3-sonnet", 4096),
    ("claude-3-haiku", 4096),
    ("claude-3-5", 8192),
];

/// The shortest room to think in that Anthropic allows, in tokens.
const LEAST_BUDGET: u64 = 1024;

/// How far a model may think, in tokens; any other word is the most.
const BUDGETS: [(&str, u64); 3] = [("minimal", LEAST_BUDGET), ("low", 2048), ("medium", 8192)];
const MOST_BUDGET: u64 = 24_000;

/// The longest answer that is asked for, in tokens.
pub(super) fn max_tokens(config: &LlmConfig) -> u64 {
    let old = OLD_MAX_TOKENS.into_iter().find(|(name, _)| config.wire_model().contains(name));
    config.max_output_tokens.unwrap_or(old.map_or(MAX_TOKENS, |(_, tokens)| tokens))
}

/// Whether the model is to think before it answers.
pub(super) fn thinks(config: &LlmConfig) -> Result<bool, ConfigError> {
    Ok(match extra_fields(config)?.get("thinking") {
        Some(thinking) => thinking["type"] != "disabled",
        None => budget(config).is_some(),
    })
}

/// A model that thinks takes no sampling parameters.
pub(super) fn parameters_of(config: &LlmConfig, thinks: bool) -> Result<Parameters, ConfigError> {
    let required = Map::from_iter([("max_tokens".to_owned(), max_tokens(config).into())]);
    let optional = if thinks { thinking(config).into_iter().collect() } else { sampling(config) };
    let stop = (!config.stop.is_empty()).then(|| json!({ "stop_sequences": config.stop }));
    let stop = stop.map(|stop| vec![Form::new("stop_sequences", stop)]);
    let optional = optional.into_iter().chain(stop).collect();
    Parameters::new(config, &["messages", "tools", "system"], required, optional)
}

fn sampling(config: &LlmConfig) -> Vec<Optional> {
    config.sampling().map(|(name, value)| vec![Form::new(name, json!({ (name): value }))]).into()
}

/// With a budget; models that decide by themselves refuse that, and are told how hard to try.
fn thinking(config: &LlmConfig) -> Option<Optional> {
    let budget = budget(config)?;
    Some(vec![
        Form::new(
            "thinking.type.enabled",
            json!({ "thinking": { "type": "enabled", "budget_tokens": budget } }),
        ),
        Form::new(
            "thinking",
            json!({ "thinking": { "type": "adaptive" }, "output_config": { "effort": config.reasoning_effort } }),
        ),
    ])
}

/// At most half of the answer.
fn budget(config: &LlmConfig) -> Option<u64> {
    let effort =
        config.reasoning_effort.as_deref().filter(|effort| !matches!(*effort, "" | "none" | "disable"))?;
    let asked =
        BUDGETS.into_iter().find(|(word, _)| *word == effort).map_or(MOST_BUDGET, |(_, budget)| budget);
    Some(asked.min(max_tokens(config) / 2)).filter(|budget| *budget >= LEAST_BUDGET)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn parameters(change: impl FnOnce(&mut LlmConfig)) -> Parameters {
        let mut config = LlmConfig::new("anthropic/claude-x");
        change(&mut config);
        parameters_of(&config, thinks(&config).unwrap()).unwrap()
    }

    fn sent(parameters: &Parameters) -> Value {
        let mut body = Map::new();
        parameters.add_to(&mut body);
        Value::Object(body)
    }

    #[test]
    fn the_longest_answer_is_always_said() {
        let expected =
            json!({ "model": "claude-x", "stream": true, "max_tokens": 32_000, "temperature": 0.0 });
        assert_eq!(sent(&parameters(|_| ())), expected);
        let old = sent(&parameters(|config| config.model = "anthropic/claude-3-5-haiku".into()));
        assert_eq!(old["max_tokens"], 8192);
        assert_eq!(sent(&parameters(|config| config.max_output_tokens = Some(7)))["max_tokens"], 7);
    }

    #[test]
    fn a_model_is_not_sent_the_sampling_that_it_refuses() {
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
    fn a_model_that_thinks_takes_no_temperature() {
        let parameters = parameters(|config| {
            config.reasoning_effort = Some("medium".into());
            config.top_k = Some(5);
        });
        let enabled = json!({ "type": "enabled", "budget_tokens": 8192 });
        let expected =
            json!({ "model": "claude-x", "stream": true, "max_tokens": 32_000, "thinking": enabled });
        assert_eq!(sent(&parameters), expected);
        assert!(parameters.leave_out("thinking.type.enabled"));
        let sent = sent(&parameters);
        assert_eq!(
            (&sent["thinking"], &sent["output_config"]),
            (&json!({ "type": "adaptive" }), &json!({ "effort": "medium" }))
        );
    }

    #[test]
    fn thinking_has_room_or_is_not_asked_for() {
        let budget = |effort: &str, max| {
            let sent = sent(&parameters(|config| {
                config.reasoning_effort = Some(effort.into());
                config.max_output_tokens = max;
            }));
            sent["thinking"]["budget_tokens"].as_u64()
        };
        assert_eq!(budget("high", None), Some(16_000));
        assert_eq!(budget("high", Some(100_000)), Some(MOST_BUDGET));
        assert_eq!((budget("low", Some(2000)), budget("none", None)), (None, None));
    }

    #[test]
    fn what_the_user_wrote_about_thinking_wins() {
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
