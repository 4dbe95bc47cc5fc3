//! `[secrets]` and `--secret`: values that commands can use and that are redacted everywhere else.

use std::collections::BTreeMap;
use std::path::Path;

use engine::secrets::Secret;
use secrecy::SecretString;

use super::settings::{ConfigError, Setting};
use crate::input_file::{self, MAX_SETTINGS_LENGTH};

/// Reads the secrets. A flag replaces the value of the file's secret and keeps its description.
pub(super) fn read(
    file: BTreeMap<String, Setting>,
    flags: &[String],
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, Secret>, ConfigError> {
    let mut found = BTreeMap::new();
    for (name, Setting { value, .. }) in file {
        let secret = from_file(value).ok_or_else(|| {
            invalid(
                &name,
                "must be a string, or {value = \"…\", description = \"…\"}",
            )
        })?;
        found.insert(name, secret);
    }
    for flag in flags {
        let (name, value) = from_flag(flag, environment)?;
        let description = found
            .remove(&name)
            .map(|secret: Secret| secret.description)
            .unwrap_or_default();
        found.insert(name, Secret { value, description });
    }
    match found.keys().find(|name| !is_variable_name(name)) {
        Some(name) => Err(invalid(name, INVALID_NAME)),
        None => Ok(found),
    }
}

/// `None` if the value is not a secret.
fn from_file(value: toml::Value) -> Option<Secret> {
    let (value, description) = match value {
        toml::Value::String(text) => (text, None),
        toml::Value::Table(mut table) => match table.remove("value")? {
            toml::Value::String(text) => (text, table.remove("description")),
            _ => return None,
        },
        _ => return None,
    };
    let description = match description {
        Some(toml::Value::String(text)) => text,
        Some(_) => return None,
        None => String::new(),
    };
    Some(Secret {
        value: value.into(),
        description,
    })
}

fn from_flag(
    flag: &str,
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<(String, SecretString), ConfigError> {
    let Some((name, value)) = flag.split_once('=') else {
        let value = environment(flag).ok_or_else(|| {
            invalid(
                flag,
                "is not in the environment: set it, or say --secret NAME=@FILE",
            )
        })?;
        return Ok((flag.to_owned(), value.into()));
    };
    let value = match value.strip_prefix('@') {
        // Editors end a file with a newline, which is not part of the secret.
        Some(path) => input_file::read_named(Path::new(path), MAX_SETTINGS_LENGTH)
            .and_then(input_file::to_text)
            .map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
            .map_err(|error| invalid(name, &format!("cannot be read from {path}: {error}")))?,
        None => value.to_owned(),
    };
    Ok((name.to_owned(), value.into()))
}

/// Problem of a name that [`is_variable_name`] refuses.
pub(super) const INVALID_NAME: &str =
    "has a name that a shell does not take: letters, digits and _, and no digit first";

/// Whether a shell accepts this name of a variable.
pub(super) fn is_variable_name(name: &str) -> bool {
    name.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
}

fn invalid(name: &str, problem: &str) -> ConfigError {
    ConfigError::BadSecret {
        name: name.to_owned(),
        problem: problem.to_owned(),
    }
}
