//! `[secrets]` and `--secret`: what nobody may see, by name.

use std::collections::BTreeMap;

use secrecy::SecretString;

use super::settings::ConfigError;

/// The command line's win over the file's.
pub(super) fn read(
    file: BTreeMap<String, toml::Value>,
    flags: &[String],
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, SecretString>, ConfigError> {
    let mut found = BTreeMap::new();
    for (name, value) in file {
        let text = match &value {
            toml::Value::String(text) => Some(text),
            toml::Value::Table(table) => match table.get("value") {
                Some(toml::Value::String(text)) => Some(text),
                _ => None,
            },
            _ => None,
        };
        let expected = "must be a string, or {value = \"…\", description = \"…\"}";
        let text = text.ok_or_else(|| bad(&name, expected))?;
        found.insert(name, SecretString::from(text.as_str()));
    }
    for flag in flags {
        let (name, value) = of_flag(flag, environment)?;
        found.insert(name, value);
    }
    match found.keys().find(|name| !is_name(name)) {
        Some(name) => {
            let problem = "has a name that a shell does not take: letters, digits and _, and no digit first";
            Err(bad(name, problem))
        }
        None => Ok(found),
    }
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
        Some(path) => std::fs::read_to_string(path)
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
