//! The fields of a request beside its messages and tools; some of them optional, when a provider does not know them.
//!
//! There is no list of models here: which of them takes a temperature, or calls its limit `max_tokens`, changes every
//! month. A provider that refuses a parameter names it, and from then on it is left out.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value, json};

use crate::config::{ConfigError, LlmConfig};

/// What OpenAI now calls the longest answer, and what everyone else calls it.
const LIMIT_NAMES: [&str; 2] = ["max_completion_tokens", "max_tokens"];

/// What a request is made of without being what is asked; to override these would break the call silently.
const OURS: [&str; 2] = ["messages", "tools"];

#[derive(Debug)]
pub(super) struct Parameters {
    optional: Map<String, Value>,
    required: Map<String, Value>,
    may_leave_out: bool,
    /// Never held across an await.
    refused: Mutex<BTreeSet<String>>,
}

impl Parameters {
    pub(super) fn new(config: &LlmConfig, is_openai: bool) -> Result<Self, ConfigError> {
        let limit = LIMIT_NAMES[usize::from(!is_openai)];
        let optional = json!({
            "temperature": config.temperature,
            "top_p": config.top_p.filter(|top_p| *top_p < 1.0),
            "seed": config.seed,
            "reasoning_effort": config.reasoning_effort,
            "stream_options": { "include_usage": true },
            (limit): config.max_output_tokens,
        });
        let mut required = Map::from_iter([
            ("model".to_owned(), config.wire_model().into()),
            ("stream".to_owned(), true.into()),
        ]);
        required.extend(extra_fields(config)?);
        Ok(Self {
            optional: without_nulls(optional),
            required,
            may_leave_out: config.drop_params,
            refused: Mutex::default(),
        })
    }

    /// Adds what is not refused. What the user wrote wins, and is never left out.
    pub(super) fn add_to(&self, body: &mut Map<String, Value>) {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, value) in &self.optional {
            let name =
                if refused.contains(name) { other_limit_name(name, &refused) } else { Some(name.as_str()) };
            if let Some(name) = name {
                body.insert(name.to_owned(), value.clone());
            }
        }
        for (name, value) in &self.required {
            body.insert(name.clone(), value.clone());
        }
        if body.get("stream") == Some(&Value::Bool(false)) {
            body.remove("stream_options"); // only allowed beside a stream
        }
    }

    /// Notes a refusal; whether the request changes by it.
    pub(super) fn leave_out(&self, name: &str) -> bool {
        let ours = self.optional.contains_key(name) || LIMIT_NAMES.contains(&name);
        if !self.may_leave_out || !ours || self.required.contains_key(name) {
            return false;
        }
        let newly = self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        if newly {
            tracing::warn!(parameter = name, "the model's provider refuses a parameter: going on without it");
        }
        newly
    }
}

/// A refused limit goes under its other name, while that is not refused too.
fn other_limit_name(name: &str, refused: &BTreeSet<String>) -> Option<&'static str> {
    let is_limit = LIMIT_NAMES.contains(&name);
    LIMIT_NAMES.into_iter().find(|other| is_limit && *other != name && !refused.contains(*other))
}

/// What of `completion_kwargs` goes into the body.
fn extra_fields(config: &LlmConfig) -> Result<Map<String, Value>, ConfigError> {
    let wrong = |key: &str, problem| ConfigError::CompletionKwargs { key: key.to_owned(), problem };
    let mut fields = config.completion_kwargs.clone();
    fields.remove("extra_headers");
    if let Some(extra) = fields.remove("extra_body") {
        let Value::Object(extra) = extra else {
            return Err(wrong("extra_body", "is not an object"));
        };
        fields.extend(extra);
    }
    match OURS.into_iter().find(|name| fields.contains_key(*name)) {
        Some(name) => Err(wrong(name, "is the agent's to fill in")),
        None => Ok(fields),
    }
}

fn without_nulls(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { return Map::new() };
    map.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(change: impl FnOnce(&mut LlmConfig)) -> Parameters {
        let mut config = LlmConfig::new("openai/m");
        change(&mut config);
        Parameters::new(&config, false).unwrap()
    }

    fn sent(parameters: &Parameters) -> Value {
        let mut body = Map::new();
        parameters.add_to(&mut body);
        Value::Object(body)
    }

    #[test]
    fn only_what_is_set_is_sent() {
        let expected = json!({
            "model": "m", "stream": true, "stream_options": { "include_usage": true }, "temperature": 0.0,
        });
        assert_eq!(sent(&parameters(|_| ())), expected);
    }

    #[test]
    fn what_the_user_wrote_wins_and_stays() {
        let parameters = parameters(|config| {
            config.completion_kwargs = without_nulls(json!({
                "temperature": 1.0, "stream": false, "extra_body": { "top_k": 5 }, "extra_headers": {},
            }));
        });
        assert!(!parameters.leave_out("temperature"));
        assert_eq!(
            sent(&parameters),
            json!({ "model": "m", "stream": false, "temperature": 1.0, "top_k": 5 })
        );
    }

    #[test]
    fn the_agents_fields_cannot_be_overridden() {
        let mut config = LlmConfig::new("m");
        config.completion_kwargs.insert("tools".into(), json!([]));
        let error = Parameters::new(&config, false).unwrap_err();
        assert_eq!(error.to_string(), "`completion_kwargs`: `tools` is the agent's to fill in");
    }

    #[test]
    fn a_refused_parameter_is_left_out_once_and_for_all() {
        let parameters = parameters(|config| config.seed = Some(7));
        assert!(parameters.leave_out("temperature"));
        assert!(!parameters.leave_out("temperature"));
        assert!(!parameters.leave_out("messages"));
        assert_eq!(sent(&parameters)["temperature"], Value::Null);
        assert_eq!(sent(&parameters)["seed"], 7);
    }

    #[test]
    fn a_refused_limit_goes_under_its_other_name() {
        let parameters = parameters(|config| config.max_output_tokens = Some(100));
        assert_eq!(sent(&parameters)["max_tokens"], 100);
        assert!(parameters.leave_out("max_tokens"));
        assert_eq!(sent(&parameters)["max_completion_tokens"], 100);
        assert!(parameters.leave_out("max_completion_tokens"));
        assert!(!LIMIT_NAMES.iter().any(|name| sent(&parameters).get(name).is_some()));
    }

    #[test]
    fn nothing_is_left_out_when_that_is_not_wanted() {
        assert!(!parameters(|config| config.drop_params = false).leave_out("temperature"));
    }
}
