//! What the calling user can choose, and the user's settings and secrets. No value of a key or of a
//! secret is ever returned.

use std::fmt;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The models that users can choose.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OfferedModels {
    /// Their names.
    pub models: Vec<String>,
}

/// The agents that users can choose.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OfferedAgents {
    /// Their names.
    pub agents: Vec<String>,
}

/// Fields of [`UserSettings`](crate::client_api::UserSettings) to change. The others keep their
/// values. `Debug` omits the values, because some are keys.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SettingsChange(pub Map<String, Value>);

impl fmt::Debug for SettingsChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The secrets of a user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SecretEntryList {
    /// The secrets, sorted by name.
    pub secrets: Vec<SecretEntry>,
}

/// A stored secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SecretEntry {
    /// Its name, under which commands use it.
    pub name: String,
    /// Its purpose, for the agent; may be empty.
    pub description: String,
}

/// A request to store a secret.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetSecret {
    /// Its value.
    #[serde(deserialize_with = "crate::client_api::settings::deserialize_required_secret")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = Password))]
    pub value: SecretString,
    /// Its purpose, for the agent; may be empty.
    #[serde(default)]
    pub description: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_not_printed() {
        let change: SettingsChange =
            serde_json::from_value(json!({"llm_api_key": "hunter2"})).unwrap();
        assert_eq!(format!("{change:?}"), r#"{"llm_api_key"}"#);
        let secret: SetSecret = serde_json::from_value(json!({"value": "hunter2"})).unwrap();
        assert!(!format!("{secret:?}").contains("hunter2"));
        let error = serde_json::from_value::<SetSecret>(json!({"value": 4242})).unwrap_err();
        assert_eq!(error.to_string(), "must be a string");
    }
}
