//! The fields of a request beside what is asked; some of them optional, when a provider does not know them.
//!
//! A provider that refuses a parameter names it, and from then on it is sent in another form, or left out. So what the
//! table of models does not know costs one refused call.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};

use crate::config::{ConfigError, LlmConfig};

/// Forms of one optional parameter; the first that is not refused is sent.
pub(crate) type Optional = Vec<Form>;

/// One way to send a parameter.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    /// By which a provider refuses it.
    name: &'static str,
    fields: Map<String, Value>,
}

impl Form {
    /// `fields` is an object; its empty fields are not sent.
    pub(crate) fn new(name: &'static str, fields: Value) -> Self {
        Self { name, fields: without_nulls(fields) }
    }
}

#[derive(Debug)]
pub(crate) struct Parameters {
    optional: Vec<Optional>,
    required: Map<String, Value>,
    may_leave_out: bool,
    /// Never held across an await.
    refused: Mutex<BTreeSet<String>>,
}

impl Parameters {
    /// `asked` are the fields that hold what is asked: to override them would break the call silently.
    pub(crate) fn new(
        config: &LlmConfig,
        asked: &[&str],
        mut required: Map<String, Value>,
        optional: Vec<Optional>,
    ) -> Result<Self, ConfigError> {
        let extra = extra_fields(config)?;
        if let Some(name) = asked.iter().find(|name| extra.contains_key(**name)) {
            return Err(wrong(name, "is the agent's to fill in"));
        }
        required.insert("model".into(), config.wire_model().into());
        required.insert("stream".into(), true.into());
        required.extend(extra);
        Ok(Self { optional, required, may_leave_out: config.drop_params, refused: Mutex::default() })
    }

    /// Adds what is not refused. What the user wrote wins, and is never left out.
    pub(crate) fn add_to(&self, body: &mut Map<String, Value>) {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        for forms in &self.optional {
            if let Some(form) = forms.iter().find(|form| !refused.contains(form.name)) {
                body.extend(form.fields.clone());
            }
        }
        body.extend(self.required.clone());
        if body.get("stream") == Some(&Value::Bool(false)) {
            body.remove("stream_options"); // only allowed beside a stream
        }
    }

    /// Notes a refusal; whether the request changes by it.
    pub(crate) fn leave_out(&self, name: &str) -> bool {
        let ours = self.optional.iter().flatten().any(|form| form.name == name);
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

/// What of `completion_kwargs` goes into the body.
pub(crate) fn extra_fields(config: &LlmConfig) -> Result<Map<String, Value>, ConfigError> {
    let mut fields = config.completion_kwargs.clone();
    fields.remove("extra_headers");
    if let Some(extra) = fields.remove("extra_body") {
        let Value::Object(extra) = extra else {
            return Err(wrong("extra_body", "is not an object"));
        };
        fields.extend(extra);
    }
    Ok(fields)
}

fn wrong(key: &str, problem: &'static str) -> ConfigError {
    ConfigError::CompletionKwargs { key: key.to_owned(), problem }
}

fn without_nulls(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { return Map::new() };
    map.into_iter().filter(|(_, value)| !value.is_null()).collect()
}
