//! Parameters of the Responses API. It has no `stop`, `seed` or `top_k`.

use serde_json::{Map, Value, json};

use super::endpoint::azure_deployment;
use crate::config::{ConfigError, LlmConfig};
use crate::models::requires_responses;
use crate::wire::parameters::{OptionalParameter, ParameterForm, Parameters};

/// Minimum `max_output_tokens` that OpenAI accepts.
const MIN_OUTPUT_TOKENS: u64 = 16;

/// The names with which OpenAI and a LiteLLM proxy refuse `reasoning` for a model that does not
/// reason.
const REASONING_NAMES: [&str; 2] = ["reasoning", "reasoning_effort"];

/// Returns the requested maximum length of a response, in tokens.
pub(super) fn max_tokens(config: &LlmConfig) -> Option<u64> {
    config
        .max_output_tokens
        .map(|tokens| tokens.max(MIN_OUTPUT_TOKENS))
}

pub(super) fn build_parameters(config: &LlmConfig) -> Result<Parameters, ConfigError> {
    let mut required = Map::from_iter([("store".to_owned(), false.into())]);
    required
        .extend(azure_deployment(config).map(|deployment| ("model".to_owned(), deployment.into())));
    let one = |name, value: Value| vec![ParameterForm::new(name, json!({ (name): value }))];
    let rest = [
        one("max_output_tokens", json!(max_tokens(config))),
        one("include", json!(["reasoning.encrypted_content"])),
        one("prompt_cache_key", Value::Null), // its value depends on the request
        reasoning(config),
    ];
    let optional = sampling(config)
        .map(|(name, value)| one(name, value))
        .chain(rest)
        .collect();
    Parameters::new(
        config,
        &["input", "instructions", "tools"],
        required,
        optional,
    )
}

/// Returns the effort with a summary, which OpenAI refuses to organizations that are not verified,
/// or without one.
fn reasoning(config: &LlmConfig) -> OptionalParameter {
    let effort = config
        .reasoning_effort
        .as_deref()
        .filter(|effort| !effort.is_empty());
    let form = |name, summary: Option<&str>| {
        let fields = [("effort", effort), ("summary", summary)];
        let fields: Map<String, Value> = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.into())))
            .collect();
        let fields = (!fields.is_empty()).then_some(fields);
        ParameterForm::new(name, json!({ "reasoning": fields })).also_named(&REASONING_NAMES)
    };
    vec![
        form("reasoning.summary", Some("auto")).also_named(&["reasoning.effort"]),
        form("reasoning.effort", None),
    ]
}

/// Returns the sampling parameters, except for models that reason: they refuse them unless the
/// effort is `none`.
fn sampling(config: &LlmConfig) -> impl Iterator<Item = (&'static str, Value)> {
    let is_sampled = !requires_responses(&config.model);
    config
        .sampling()
        .into_iter()
        .filter(move |(name, _)| is_sampled && *name != "top_k")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(change: impl FnOnce(&mut LlmConfig)) -> Parameters {
        let mut config = LlmConfig::new("gpt-6-luna");
        change(&mut config);
        build_parameters(&config).unwrap()
    }

    fn sent(parameters: &Parameters) -> Value {
        let mut body = Map::new();
        parameters.add_to(&mut body);
        Value::Object(body)
    }

    #[test]
    fn response_is_not_stored_and_reasoning_is_returned() {
        let parameters = parameters(|config| {
            (config.stop, config.seed, config.top_k) = (vec!["x".into()], Some(7), Some(7));
        });
        assert_eq!(
            sent(&parameters),
            json!({
                "model": "gpt-6-luna", "stream": true, "store": false, "include": ["reasoning.encrypted_content"],
                "reasoning": { "summary": "auto" },
            })
        );
    }

    #[test]
    fn sampling_is_not_sent_to_models_that_reason() {
        let sampled = |model: &str| {
            let sent = sent(&parameters(|config| {
                (config.model, config.top_p) = (model.into(), Some(0.5));
            }));
            ["temperature", "top_p", "top_k"].map(|name| sent.get(name).is_some())
        };
        assert_eq!(sampled("grok-4.5"), [true, true, false]);
        for model in ["gpt-5.2", "gpt-6.1-terra", "o3-pro", "codex-mini-latest"] {
            assert_eq!(sampled(model), [false, false, false], "{model}");
        }
    }

    #[test]
    fn short_maximum_length_is_extended() {
        for (configured, requested) in [(None, None), (Some(1), Some(16)), (Some(100), Some(100))] {
            let sent = sent(&parameters(|config| config.max_output_tokens = configured));
            assert_eq!(
                sent.get("max_output_tokens").and_then(Value::as_u64),
                requested
            );
        }
    }

    #[test]
    fn effort_stays_when_the_summary_is_refused() {
        let reasoning = |effort: Option<&str>, refused| {
            let parameters =
                parameters(|config| config.reasoning_effort = effort.map(str::to_owned));
            assert!(parameters.drop_parameter(refused));
            sent(&parameters)["reasoning"].take()
        };
        assert_eq!(
            reasoning(Some("high"), "reasoning.summary"),
            json!({ "effort": "high" })
        );
        assert_eq!(reasoning(None, "reasoning.summary"), Value::Null);
        for refused in ["reasoning", "reasoning.effort", "reasoning_effort"] {
            assert_eq!(reasoning(Some("high"), refused), Value::Null, "{refused}");
        }
    }

    #[test]
    fn refused_cache_key_of_a_request_is_removed() {
        let parameters = parameters(|_| ());
        let has_key = || {
            let mut body = Map::from_iter([("prompt_cache_key".to_owned(), "key".into())]);
            parameters.add_to(&mut body);
            body.contains_key("prompt_cache_key")
        };
        assert!(has_key());
        assert!(parameters.drop_parameter("prompt_cache_key"));
        assert!(!has_key());
    }

    #[test]
    fn azures_deployment_is_the_model() {
        let base = "https://x.openai.azure.com/openai/deployments/d";
        assert_eq!(
            sent(&parameters(|config| config.base_url = Some(base.into())))["model"],
            "d"
        );
    }

    #[test]
    fn reserved_fields_cannot_be_overridden() {
        let mut config = LlmConfig::new("m");
        config.completion_kwargs.insert("input".into(), json!([]));
        let error = build_parameters(&config).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`completion_kwargs`: `input` is reserved for the agent"
        );
    }
}
