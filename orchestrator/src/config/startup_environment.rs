//! `runtime_startup_env_vars`: environment variables of every process in a sandbox.

use std::collections::BTreeMap;

use secrecy::SecretString;
use serde_json::Value;

use super::secrets::{INVALID_NAME, is_variable_name};
use super::settings::{ConfigError, Settings};

/// Reads the variables, by name. Numbers and truth values become text.
pub(super) fn read(settings: &Settings) -> Result<BTreeMap<String, SecretString>, ConfigError> {
    let variables = settings
        .table("sandbox", "runtime_startup_env_vars")
        .unwrap_or_default();
    let read = |(name, value): (String, Value)| {
        let refuse = |problem| {
            Err(ConfigError::BadVariable {
                name: name.clone(),
                problem,
            })
        };
        if !is_variable_name(&name) {
            return refuse(INVALID_NAME);
        }
        let value = match value {
            Value::String(text) if text.contains('\0') => return refuse("has a NUL in its value"),
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => return refuse("must be a string"),
        };
        Ok((name, SecretString::from(value)))
    };
    variables.into_iter().map(read).collect()
}
