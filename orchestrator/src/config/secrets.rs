//! `[secrets]` and `--secret`: what nobody may see, by name.

use std::collections::BTreeMap;
use std::path::Path;

use engine::secrets::Secret;
use secrecy::SecretString;

use super::settings::ConfigError;
use crate::input_file::{self, MAX_SETTINGS_LENGTH};

/// The command line's win over the file's, whose descriptions stay.
pub(super) fn read(
    file: BTreeMap<String, toml::Value>,
    flags: &[String],
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, Secret>, ConfigError> {
    let mut found = BTreeMap::new();
    for (name, value) in file {
        let secret = of_file(value)
            .ok_or_else(|| bad(&name, "must be a string, or {value = \"…\", description = \"…\"}"))?;
        found.insert(name, secret);
    }
    for flag in flags {
        let (name, value) = of_flag(flag, environment)?;
        let description = found.remove(&name).map(|secret: Secret| secret.description).unwrap_or_default();
        found.insert(name, Secret { value, description });
    }
    match found.keys().find(|name| !is_name(name)) {
        Some(name) => {
            let problem = "has a name that a shell does not take: letters, digits and _, and no digit first";
            Err(bad(name, problem))
        }
        None => Ok(found),
    }
}

/// Nothing for what is none.
fn of_file(value: toml::Value) -> Option<Secret> {
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
    Some(Secret { value: value.into(), description })
}

fn of_flag(
    flag: &str,
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<(String, SecretString), ConfigError> {
    let Some((name, value)) = flag.split_once('=') else {
        let value = environment(flag)
            .ok_or_else(|| bad(flag, "is not in the environment: set it, or say --secret NAME=@FILE"))?;
        return Ok((flag.to_owned(), value.into()));
    };
    let value = match value.strip_prefix('@') {
        // Whoever writes a file ends its line.
        Some(path) => input_file::read_named(Path::new(path), MAX_SETTINGS_LENGTH)
            .and_then(input_file::to_text)
            .map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
            .map_err(|error| bad(name, &format!("cannot be read from {path}: {error}")))?,
        None => value.to_owned(),
    };
    Ok((name.to_owned(), value.into()))
}

fn is_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
}

fn bad(name: &str, problem: &str) -> ConfigError {
    ConfigError::BadSecret { name: name.to_owned(), problem: problem.to_owned() }
}
