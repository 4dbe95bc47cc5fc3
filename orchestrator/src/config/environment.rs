//! The environment: the upper-case name of a key, after its section's prefix.

use super::keys::{self, Key, Kind};
use super::settings::{ConfigError, Origin, Settings};

/// Reads the variables of the keys that have an effect. An empty one is passed over.
pub(super) fn read(variable: &impl Fn(&str) -> Option<String>) -> Result<Settings, ConfigError> {
    let mut settings = Settings::default();
    for key in keys::all().filter(|key| key.has_effect) {
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
        | Kind::UnknownHosts
        | Kind::Confirmation
        | Kind::Router => Some(toml::Value::String(text.to_owned())),
        Kind::Integer => text.parse().ok().map(toml::Value::Integer),
        Kind::Number => text.parse().ok().map(toml::Value::Float),
        // As V0 reads it.
        Kind::Flag => match text.to_ascii_lowercase().as_str() {
            "true" | "1" => Some(toml::Value::Boolean(true)),
            "false" | "0" => Some(toml::Value::Boolean(false)),
            _ => None,
        },
        Kind::Servers | Kind::List | Kind::Table | Kind::Tables | Kind::Any => {
            let json: serde_json::Value = serde_json::from_str(text).ok()?;
            toml::Value::try_from(json).ok()
        }
    }
}
