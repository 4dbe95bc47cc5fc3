//! OpenAI's parameters.

use serde_json::{Map, Value, json};

use crate::config::{ConfigError, LlmConfig};
use crate::wire::parameters::{ParameterForm, Parameters};

/// Names of the maximum length of a response: OpenAI's, and that of all other servers.
const LIMIT_NAMES: [&str; 2] = ["max_completion_tokens", "max_tokens"];

pub(super) fn build_parameters(
    config: &LlmConfig,
    is_openai: bool,
) -> Result<Parameters, ConfigError> {
    let one = |name, value: Value| vec![ParameterForm::new(name, json!({ (name): value }))];
    let mut limits = LIMIT_NAMES
        .map(|name| ParameterForm::new(name, json!({ (name): config.max_output_tokens })));
    if !is_openai {
        limits.reverse();
    }
    let rest = [
        one("seed", json!(config.seed)),
        one("reasoning_effort", json!(config.reasoning_effort)),
        one("stream_options", json!({ "include_usage": true })),
        one(
            "stop",
            json!((!config.stop.is_empty()).then_some(&config.stop)),
        ),
        limits.into(),
    ];
    let sampling = config.sampling().map(|(name, value)| one(name, value));
    let optional = sampling.into_iter().chain(rest).collect();
    Parameters::new(config, &["messages", "tools"], Map::new(), optional)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(change: impl FnOnce(&mut LlmConfig)) -> Parameters {
        let mut config = LlmConfig::new("openai/m");
        change(&mut config);
        build_parameters(&config, false).unwrap()
    }

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn sent(parameters: &Parameters) -> Value {
        let mut body = Map::new();
        parameters.add_to(&mut body);
        Value::Object(body)
    }

    #[test]
    fn only_set_parameters_are_sent() {
        let expected = json!({
            "model": "m", "stream": true, "stream_options": { "include_usage": true }, "temperature": 0.0,
        });
        assert_eq!(sent(&parameters(|_| ())), expected);
    }

    #[test]
    fn unsupported_sampling_parameters_are_not_sent() {
        let sampled = |model: &str, temperature| {
            let sent = sent(&parameters(|config| {
                config.model = model.into();
                (config.temperature, config.top_p, config.top_k) =
                    (temperature, Some(0.5), Some(7));
            }));
            ["temperature", "top_p", "top_k"].map(|name| sent.get(name).is_some())
        };
        for (model, temperature, expected) in [
            ("m", Some(0.0), [true, true, true]),
            ("openai/o3", Some(0.0), [false, false, false]),
            ("gpt-5-mini", Some(0.7), [false, false, false]),
            (
                "litellm_proxy/claude-opus-4-7",
                Some(0.0),
                [false, false, false],
            ),
            (
                "litellm_proxy/claude-sonnet-4-5",
                Some(0.0),
                [true, false, true],
            ),
            ("litellm_proxy/claude-sonnet-4-5", None, [false, true, true]),
        ] {
            assert_eq!(
                sampled(model, temperature),
                expected,
                "{model} {temperature:?}"
            );
        }
    }

    #[test]
    fn users_parameters_override_others_and_stay() {
        let parameters = parameters(|config| {
            config.completion_kwargs = object(json!({
                "temperature": 1.0, "stream": false, "extra_body": { "top_k": 5 }, "extra_headers": {},
            }));
        });
        assert!(!parameters.drop_parameter("temperature"));
        assert_eq!(
            sent(&parameters),
            json!({ "model": "m", "stream": false, "temperature": 1.0, "top_k": 5 })
        );
    }

    #[test]
    fn reserved_fields_cannot_be_overridden() {
        let mut config = LlmConfig::new("m");
        config.completion_kwargs.insert("tools".into(), json!([]));
        let error = build_parameters(&config, false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`completion_kwargs`: `tools` is reserved for the agent"
        );
    }

    #[test]
    fn refused_parameter_is_not_sent_again() {
        let parameters = parameters(|config| config.seed = Some(7));
        assert!(parameters.drop_parameter("temperature"));
        assert!(!parameters.drop_parameter("temperature"));
        assert!(!parameters.drop_parameter("messages"));
        assert_eq!(sent(&parameters)["temperature"], Value::Null);
        assert_eq!(sent(&parameters)["seed"], 7);
    }

    #[test]
    fn refused_limit_is_sent_with_its_other_name() {
        let parameters = parameters(|config| config.max_output_tokens = Some(100));
        assert_eq!(sent(&parameters)["max_tokens"], 100);
        assert!(parameters.drop_parameter("max_tokens"));
        assert_eq!(sent(&parameters)["max_completion_tokens"], 100);
        assert!(parameters.drop_parameter("max_completion_tokens"));
        assert!(
            !LIMIT_NAMES
                .iter()
                .any(|name| sent(&parameters).get(name).is_some())
        );
    }

    #[test]
    fn no_parameter_is_dropped_when_that_is_disabled() {
        assert!(!parameters(|config| config.drop_params = false).drop_parameter("temperature"));
    }
}
