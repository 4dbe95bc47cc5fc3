//! Parameters of a request: its fields other than messages and tools.
//!
//! Once a provider has refused an optional parameter, the parameter is sent in another form, or
//! dropped. So an entry that is missing in the table of models costs one refused request.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};

use crate::config::{ConfigError, LlmConfig};

/// The forms of one optional parameter. The first that is not refused is sent.
pub(crate) type OptionalParameter = Vec<ParameterForm>;

/// A form of a parameter.
#[derive(Debug, Clone)]
pub(crate) struct ParameterForm {
    /// The names with which providers refuse it.
    names: Vec<&'static str>,
    fields: Map<String, Value>,
}

impl ParameterForm {
    /// Creates a form from an object. Null fields are not sent.
    pub(crate) fn new(name: &'static str, fields: Value) -> Self {
        Self {
            names: vec![name],
            fields: without_nulls(fields),
        }
    }

    /// Adds names with which providers refuse it.
    pub(crate) fn also_named(mut self, names: &[&'static str]) -> Self {
        self.names.extend(names);
        self
    }

    fn is_in(&self, refused: &BTreeSet<String>) -> bool {
        self.names.iter().any(|name| refused.contains(*name))
    }
}

#[derive(Debug)]
pub(crate) struct Parameters {
    optional: Vec<OptionalParameter>,
    required: Map<String, Value>,
    can_drop: bool,
    /// Names of refused forms. Never locked across an await.
    refused: Mutex<BTreeSet<String>>,
}

impl Parameters {
    /// Creates the parameters. `reserved` are the fields of messages and tools, which the user
    /// cannot override.
    pub(crate) fn new(
        config: &LlmConfig,
        reserved: &[&str],
        mut required: Map<String, Value>,
        optional: Vec<OptionalParameter>,
    ) -> Result<Self, ConfigError> {
        let extra = extra_fields(config)?;
        if let Some(name) = reserved.iter().find(|name| extra.contains_key(**name)) {
            return Err(invalid(name, "is reserved for the agent"));
        }
        required
            .entry("model")
            .or_insert_with(|| config.wire_model().into());
        required.insert("stream".into(), true.into());
        required.extend(extra);
        Ok(Self {
            optional,
            required,
            can_drop: config.drop_params,
            refused: Mutex::default(),
        })
    }

    /// Adds the parameters to a body, and removes what of it is refused. The user's override all
    /// others, and are never dropped.
    pub(crate) fn add_to(&self, body: &mut Map<String, Value>) {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.iter().for_each(|name| drop(body.remove(name)));
        for forms in &self.optional {
            if let Some(form) = forms.iter().find(|form| !form.is_in(&refused)) {
                body.extend(form.fields.clone());
            }
        }
        body.extend(self.required.clone());
        if body.get("stream") == Some(&Value::Bool(false)) {
            body.remove("stream_options"); // only allowed for a stream
        }
    }

    /// Records that the provider refuses a parameter. Returns whether the next request differs.
    pub(crate) fn drop_parameter(&self, name: &str) -> bool {
        let is_optional = self
            .optional
            .iter()
            .flatten()
            .any(|form| form.names.contains(&name));
        if !self.can_drop || !is_optional || self.required.contains_key(name) {
            return false;
        }
        let is_new = self
            .refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.to_owned());
        if is_new {
            tracing::warn!(
                parameter = name,
                "the provider refuses a parameter; continuing without it"
            );
        }
        is_new
    }
}

/// Returns the fields of `completion_kwargs` that are part of the body.
pub(crate) fn extra_fields(config: &LlmConfig) -> Result<Map<String, Value>, ConfigError> {
    let mut fields = config.completion_kwargs.clone();
    fields.remove("extra_headers");
    if let Some(extra) = fields.remove("extra_body") {
        let Value::Object(extra) = extra else {
            return Err(invalid("extra_body", "is not an object"));
        };
        fields.extend(extra);
    }
    Ok(fields)
}

fn invalid(key: &str, problem: &'static str) -> ConfigError {
    ConfigError::CompletionKwargs {
        key: key.to_owned(),
        problem,
    }
}

fn without_nulls(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else {
        return Map::new();
    };
    map.into_iter()
        .filter(|(_, value)| !value.is_null())
        .collect()
}
