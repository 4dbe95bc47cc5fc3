//! Environment variables: the upper-case name of a key, prefixed with its section.

use protocol::python_literal;

use super::keys::{self, Key, Kind};
use super::settings::{ConfigError, Origin, Settings};

/// Reads the variables. Ignores empty ones, and accepts any text for a key without effect.
pub(super) fn read(variable: &impl Fn(&str) -> Option<String>) -> Result<Settings, ConfigError> {
    let mut settings = Settings::default();
    for key in keys::all() {
        let name = variable_name(key);
        if let Some(text) = variable(&name).filter(|text| !text.is_empty()) {
            let value = to_value(key.kind, &text).ok_or_else(|| ConfigError::BadValue {
                origin: Origin::Variable(name.clone()),
                key: format!("{}.{}", key.section, key.name),
                expected: key.kind.expected(),
                found: "what it holds".to_owned(),
            })?;
            settings.set(key, value, Origin::Variable(name))?;
        }
    }
    Ok(settings)
}

fn variable_name(key: Key) -> String {
    match key.section {
        "core" => key.name.to_uppercase(),
        section => format!("{section}_{}", key.name).to_uppercase(),
    }
}

fn to_value(kind: Kind, text: &str) -> Option<toml::Value> {
    match kind {
        Kind::Text
        | Kind::Size
        | Kind::Volumes
        | Kind::Url
        | Kind::Runtime
        | Kind::UnknownHosts
        | Kind::Confirmation
        | Kind::Router
        | Kind::Any => Some(toml::Value::String(text.to_owned())),
        Kind::Integer => text.trim().parse().ok().map(toml::Value::Integer),
        Kind::Number => text.trim().parse().ok().map(toml::Value::Float),
        // V0's notation.
        Kind::Flag => match text.to_ascii_lowercase().as_str() {
            "true" | "1" => Some(toml::Value::Boolean(true)),
            "false" | "0" => Some(toml::Value::Boolean(false)),
            _ => None,
        },
        // JSON is Glovebox's notation, a Python literal V0's.
        Kind::Servers | Kind::List | Kind::Table | Kind::Tables => {
            let json = serde_json::from_str(text)
                .ok()
                .or_else(|| python_literal::parse(text))?;
            toml::Value::try_from(without_nulls(json)).ok()
        }
    }
}

/// Removes null entries, for which TOML has no value.
fn without_nulls(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Object(map) => {
            let entries = map.into_iter().filter(|(_, value)| !value.is_null());
            entries
                .map(|(key, value)| (key, without_nulls(value)))
                .collect()
        }
        Value::Array(values) => values.into_iter().map(without_nulls).collect(),
        other => other,
    }
}
