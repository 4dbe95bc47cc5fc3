//! Anthropic's parameters.

use serde_json::{Map, json};

use crate::config::{ConfigError, LlmConfig};
use crate::models::is_of_family;
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
const THINKING_TOKENS: [(&str, u64); 3] = [
    ("minimal", MIN_THINKING_TOKENS),
    ("low", 2048),
    ("medium", 8192),
];
const MAX_THINKING_TOKENS: u64 = 24_000;

/// Efforts that disable thinking, for models that can.
const NO_EFFORT: [&str; 2] = ["none", "disable"];

/// Returns the requested maximum length of a response, in tokens.
pub(super) fn max_tokens(config: &LlmConfig) -> u64 {
    let old = OLD_MAX_TOKENS
        .into_iter()
        .find(|(name, _)| config.wire_model().contains(name));
    config
        .max_output_tokens
        .unwrap_or(old.map_or(DEFAULT_MAX_TOKENS, |(_, tokens)| tokens))
}

/// Models that always think, as much as they find useful.
const THINKING_MODELS: [&str; 5] = [
    "claude-fable",
    "claude-mythos",
    "claude-opus-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
];

/// Models that think if they are asked to, and refuse a budget.
const MODELS_WITHOUT_BUDGET: [&str; 3] = ["claude-opus-4-7", "claude-opus-4-8", "claude-sonnet-5"];

/// How a request enables thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thinking {
    Disabled,
    /// By `completion_kwargs`.
    Configured,
    /// With a budget, or with an effort if the model turns out to refuse a budget.
    Budget(u64),
    /// The model decides. With an effort if one is configured.
    Adaptive,
}

impl Thinking {
    pub(super) fn of(config: &LlmConfig) -> Result<Self, ConfigError> {
        let is_of = |families: &[&str]| {
            families
                .iter()
                .any(|family| is_of_family(&config.model, family))
        };
        Ok(
            match (
                extra_fields(config)?.get("thinking"),
                thinking_budget(config),
            ) {
                (Some(thinking), _) if thinking["type"] == "disabled" => Self::Disabled,
                (Some(_), _) => Self::Configured,
                (None, _) if is_of(&THINKING_MODELS) => Self::Adaptive,
                (None, Some(_)) if is_of(&MODELS_WITHOUT_BUDGET) => Self::Adaptive,
                (None, Some(budget)) => Self::Budget(budget),
                (None, None) => Self::Disabled,
            },
        )
    }
}

/// Builds the parameters. Anthropic rejects sampling parameters if thinking is enabled.
pub(super) fn build_parameters(
    config: &LlmConfig,
    thinking: Thinking,
) -> Result<Parameters, ConfigError> {
    let required = Map::from_iter([("max_tokens".to_owned(), max_tokens(config).into())]);
    let optional = match thinking {
        Thinking::Disabled => sampling(config),
        Thinking::Configured => vec![],
        Thinking::Budget(budget) => vec![budget_or_effort(budget, config)],
        Thinking::Adaptive => adaptive(config),
    };
    let stop = (!config.stop.is_empty()).then(|| json!({ "stop_sequences": config.stop }));
    let stop = stop.map(|stop| vec![ParameterForm::new("stop_sequences", stop)]);
    let optional = optional.into_iter().chain(stop).collect();
    Parameters::new(config, &["messages", "tools", "system"], required, optional)
}

fn sampling(config: &LlmConfig) -> Vec<OptionalParameter> {
    config
        .sampling()
        .map(|(name, value)| vec![ParameterForm::new(name, json!({ (name): value }))])
        .into()
}

/// Returns the parameters of thinking with a budget, and those for a model that refuses it.
fn budget_or_effort(budget: u64, config: &LlmConfig) -> OptionalParameter {
    vec![
        ParameterForm::new(
            "thinking.type.enabled",
            json!({ "thinking": { "type": "enabled", "budget_tokens": budget } }),
        ),
        ParameterForm::new(
            "thinking",
            json!({ "thinking": { "type": "adaptive" }, "output_config": { "effort": config.reasoning_effort } }),
        ),
    ]
}

/// Returns the parameters of a model that decides how much it thinks. It omits the text of its
/// thoughts unless it is asked for a summary, and what it says between calls is among them.
fn adaptive(config: &LlmConfig) -> Vec<OptionalParameter> {
    let effort = config
        .reasoning_effort
        .as_deref()
        .filter(|effort| !effort.is_empty());
    let effort = effort.map(|effort| {
        if NO_EFFORT.contains(&effort) {
            "low"
        } else {
            effort
        }
    });
    let thinking = |thinking| json!({ "thinking": thinking });
    vec![
        vec![
            ParameterForm::new(
                "thinking.adaptive.display",
                thinking(json!({ "type": "adaptive", "display": "summarized" })),
            ),
            ParameterForm::new("thinking", thinking(json!({ "type": "adaptive" }))),
        ],
        vec![ParameterForm::new(
            "output_config.effort",
            json!({ "output_config": effort.map(|effort| json!({ "effort": effort })) }),
        )],
    ]
}

/// Returns the thinking budget: at most half of the response. `None` if thinking is disabled or the
/// budget is too small.
fn thinking_budget(config: &LlmConfig) -> Option<u64> {
    let effort = config
        .reasoning_effort
        .as_deref()
        .filter(|effort| !effort.is_empty() && !NO_EFFORT.contains(effort))?;
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
        build_parameters(&config, Thinking::of(&config).unwrap()).unwrap()
    }

    fn sent(parameters: &Parameters) -> Value {
        let mut body = Map::new();
        parameters.add_to(&mut body);
        Value::Object(body)
    }

    #[test]
    fn maximum_length_is_always_sent() {
        let expected = json!({ "model": "claude-x", "stream": true, "max_tokens": 32_000, "temperature": 0.0 });
        assert_eq!(sent(&parameters(|_| ())), expected);
        let old = sent(&parameters(|config| {
            config.model = "anthropic/claude-3-5-haiku".into();
        }));
        assert_eq!(old["max_tokens"], 8192);
        assert_eq!(
            sent(&parameters(|config| config.max_output_tokens = Some(7)))["max_tokens"],
            7
        );
    }

    #[test]
    fn unsupported_sampling_parameters_are_not_sent() {
        let sent = |model: &str| {
            let sent = sent(&parameters(|config| {
                (config.model, config.top_p) = (model.into(), Some(0.5));
            }));
            (
                sent.get("temperature").is_some(),
                sent.get("top_p").is_some(),
            )
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
        let expected = json!({ "model": "claude-x", "stream": true, "max_tokens": 32_000, "thinking": enabled });
        assert_eq!(sent(&parameters), expected);
        assert!(parameters.drop_parameter("thinking.type.enabled"));
        let sent = sent(&parameters);
        assert_eq!(
            (&sent["thinking"], &sent["output_config"]),
            (
                &json!({ "type": "adaptive" }),
                &json!({ "effort": "medium" })
            )
        );
    }

    #[test]
    fn thinking_models_are_asked_for_a_summary() {
        let sent_by = |model: &str, effort: Option<&str>| {
            let sent = sent(&parameters(|config| {
                (config.model, config.reasoning_effort) = (model.into(), effort.map(str::to_owned));
            }));
            (
                sent.get("thinking").cloned(),
                sent.get("output_config").cloned(),
            )
        };
        let summarized = Some(json!({ "type": "adaptive", "display": "summarized" }));
        let effort = |effort| Some(json!({ "effort": effort }));
        for (model, configured, expected) in [
            ("claude-opus-5-5", None, (summarized.clone(), None)),
            (
                "anthropic/claude-fable-5-2",
                Some("xhigh"),
                (summarized.clone(), effort("xhigh")),
            ),
            (
                "claude-mythos-5",
                Some("none"),
                (summarized.clone(), effort("low")),
            ),
            (
                "claude-opus-4-8",
                Some("high"),
                (summarized, effort("high")),
            ),
            ("claude-opus-4-8", None, (None, None)),
            ("claude-sonnet-5", Some("none"), (None, None)),
        ] {
            assert_eq!(
                sent_by(model, configured),
                expected,
                "{model} {configured:?}"
            );
        }
        let parameters = parameters(|config| config.model = "claude-fable-5".into());
        assert!(parameters.drop_parameter("thinking.adaptive.display"));
        assert_eq!(sent(&parameters)["thinking"], json!({ "type": "adaptive" }));
        assert!(parameters.drop_parameter("thinking"));
        assert_eq!(sent(&parameters).get("thinking"), None);
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
        assert_eq!(
            (budget("low", Some(2000)), budget("none", None)),
            (None, None)
        );
    }

    #[test]
    fn thinking_of_the_user_overrides_the_effort() {
        let thinking = |kind: &str| {
            sent(&parameters(|config| {
                config.reasoning_effort = Some("high".into());
                config
                    .completion_kwargs
                    .insert("thinking".into(), json!({ "type": kind }));
            }))
        };
        assert_eq!(
            thinking("adaptive")["thinking"],
            json!({ "type": "adaptive" })
        );
        assert_eq!(thinking("adaptive").get("temperature"), None);
        assert_eq!(
            thinking("disabled")["thinking"],
            json!({ "type": "disabled" })
        );
        assert_eq!(thinking("disabled")["temperature"], 0.0);
    }
}
