//! `runtime_startup_env_vars`: environment variables of every process in a sandbox.

use std::collections::BTreeMap;

use secrecy::SecretString;
use serde_json::Value;

use super::settings::{ConfigError, Settings};

/// Reads the variables, by name. Numbers and truth values become text.
pub(super) fn read(settings: &Settings) -> Result<BTreeMap<String, SecretString>, ConfigError> {
    let variables = settings.table("sandbox", "runtime_startup_env_vars").unwrap_or_default();
    let read = |(name, value): (String, Value)| {
        let refuse = |problem| Err(ConfigError::BadVariable { name: name.clone(), problem });
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && !name.starts_with(|first: char| first.is_ascii_digit())
            && !name.is_empty();
        if !is_name {
            return refuse(
                "has a name that a shell does not take: letters, digits and _, and no digit first",
            );
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
