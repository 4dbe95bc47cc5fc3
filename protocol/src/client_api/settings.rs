//! Settings and secrets of a user. No value of a secret is ever serialized, nor quoted in an error.

use std::collections::BTreeMap;

use secrecy::SecretString;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::git::GitProvider;
use crate::lenient::null_is_default;

/// The settings of a user, with V0's names. A field that is `None` leaves the choice to the server,
/// except for keys in a response, which are always `None`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UserSettings {
    /// Language of the web page.
    pub language: Option<String>,
    /// Name of the agent.
    pub agent: Option<String>,
    /// Maximum number of steps of the agent.
    pub max_iterations: Option<u32>,
    /// Name of the security analyzer.
    pub security_analyzer: Option<String>,
    /// Whether actions need the user's confirmation.
    pub confirmation_mode: Option<bool>,
    /// The model.
    pub llm_model: Option<String>,
    /// Key of the model's provider.
    #[serde(
        default,
        serialize_with = "serialize_none",
        deserialize_with = "deserialize_secret"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = Password))]
    pub llm_api_key: Option<SecretString>,
    /// Base URL of the model's provider.
    pub llm_base_url: Option<String>,
    /// Resources of a remote sandbox. Without effect.
    pub remote_runtime_resource_factor: Option<f64>,
    /// Whether long histories are condensed.
    #[serde(default = "default_true", deserialize_with = "deserialize_true")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<bool>, default = true))]
    pub enable_default_condenser: bool,
    /// Whether the web page plays sounds.
    #[serde(default, deserialize_with = "null_is_default")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<bool>, default = false))]
    pub enable_sound_notifications: bool,
    /// Whether the web page suggests tasks.
    #[serde(default = "default_true", deserialize_with = "deserialize_true")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<bool>, default = true))]
    pub enable_proactive_conversation_starters: bool,
    /// Whether the web page estimates the difficulty of tasks.
    #[serde(default = "default_true", deserialize_with = "deserialize_true")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<bool>, default = true))]
    pub enable_solvability_analysis: bool,
    /// Whether the user consents to analytics. `None` if the user has not been asked.
    pub user_consents_to_analytics: Option<bool>,
    /// Image that a sandbox's image is built from. Without effect.
    pub sandbox_base_container_image: Option<String>,
    /// Image of sandboxes. Without effect.
    pub sandbox_runtime_container_image: Option<String>,
    /// Tool servers. Without effect.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub mcp_config: Option<Value>,
    /// Key of a search engine. Without effect.
    #[serde(
        default,
        serialize_with = "serialize_none",
        deserialize_with = "deserialize_secret"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = Password))]
    pub search_api_key: Option<SecretString>,
    /// Key of a remote sandbox service. Without effect.
    #[serde(
        default,
        serialize_with = "serialize_none",
        deserialize_with = "deserialize_secret"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = Password))]
    pub sandbox_api_key: Option<SecretString>,
    /// Maximum cost of a task, in US dollars.
    pub max_budget_per_task: Option<f64>,
    /// Number of events from which a history is condensed.
    pub condenser_max_size: Option<u32>,
    /// E-mail address of the user.
    pub email: Option<String>,
    /// Author of commits.
    pub git_user_name: Option<String>,
    /// E-mail address of the author.
    pub git_user_email: Option<String>,
}

impl Default for UserSettings {
    fn default() -> Self {
        Self {
            language: None,
            agent: None,
            max_iterations: None,
            security_analyzer: None,
            confirmation_mode: None,
            llm_model: None,
            llm_api_key: None,
            llm_base_url: None,
            remote_runtime_resource_factor: None,
            enable_default_condenser: true,
            enable_sound_notifications: false,
            enable_proactive_conversation_starters: true,
            enable_solvability_analysis: true,
            user_consents_to_analytics: None,
            sandbox_base_container_image: None,
            sandbox_runtime_container_image: None,
            mcp_config: None,
            search_api_key: None,
            sandbox_api_key: None,
            max_budget_per_task: None,
            condenser_max_size: None,
            email: None,
            git_user_name: None,
            git_user_email: None,
        }
    }
}

/// The settings of a user, as the server returns them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UserSettingsInfo {
    /// The settings.
    #[serde(flatten)]
    pub settings: UserSettings,
    /// Providers whose tokens are stored, each with its host. `None` for the provider's own host.
    pub provider_tokens_set: BTreeMap<GitProvider, Option<String>>,
    /// Whether `llm_api_key` is stored.
    pub llm_api_key_set: bool,
    /// Whether `search_api_key` is stored.
    pub search_api_key_set: bool,
    /// V0's field that its settings no longer use.
    pub secrets_store: EmptySecretsStore,
    /// Always `None`: addresses are not verified.
    pub email_verified: Option<bool>,
    /// Always `None`: V1's API is not served.
    pub v1_enabled: Option<bool>,
}

/// V0's store of secrets in the settings, which is always empty.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EmptySecretsStore {
    provider_tokens: BTreeMap<String, String>,
    custom_secrets: BTreeMap<String, String>,
}

/// A request to store tokens of git providers.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GitTokensRequest {
    /// Tool servers, which replace those of the settings.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub mcp_config: Option<Value>,
    /// Tokens by provider.
    #[serde(default)]
    pub provider_tokens: BTreeMap<GitProvider, GitTokenRequest>,
}

/// A token of a git provider.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GitTokenRequest {
    /// The token. `None` or empty keeps the stored one.
    #[serde(default, deserialize_with = "deserialize_secret")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = Password))]
    pub token: Option<SecretString>,
    /// The user's id at the provider.
    pub user_id: Option<String>,
    /// The provider's host. `None` or empty for its own.
    pub host: Option<String>,
}

/// A request to store a secret for the agent's commands.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewSecret {
    /// Its name.
    pub name: String,
    /// Its value.
    #[serde(deserialize_with = "deserialize_required_secret")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = Password))]
    pub value: SecretString,
    /// Its purpose, for the agent.
    #[serde(default)]
    pub description: Option<String>,
}

/// A request to rename or describe a secret.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SecretUpdate {
    /// Its name from now on.
    pub name: String,
    /// Its purpose. `None` for none.
    #[serde(default)]
    pub description: Option<String>,
}

/// A stored secret, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SecretInfo {
    /// Its name.
    pub name: String,
    /// Its purpose; may be empty.
    pub description: String,
}

/// The secrets of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SecretList {
    /// The secrets, by name.
    pub custom_secrets: Vec<SecretInfo>,
}

fn serialize_none<S: Serializer>(
    _: &Option<SecretString>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_none()
}

/// Reads a value without serde's errors, which quote values of a wrong type.
fn deserialize_secret<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SecretString>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.into())),
        _ => Err(D::Error::custom("must be a string")),
    }
}

pub(super) fn deserialize_required_secret<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<SecretString, D::Error> {
    deserialize_secret(deserializer)?.ok_or_else(|| D::Error::custom("must be a string"))
}

fn default_true() -> bool {
    true
}

/// Reads a flag that is on by default. `null` is the default.
fn deserialize_true<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<bool>::deserialize(deserializer)?.unwrap_or(true))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secret_is_neither_serialized_nor_printed() {
        let settings: UserSettings = serde_json::from_value(
            json!({"llm_api_key": "hunter2", "search_api_key": "hunter2", "language": "en"}),
        )
        .unwrap();
        let info = UserSettingsInfo {
            settings,
            provider_tokens_set: BTreeMap::from([(GitProvider::GitHub, None)]),
            llm_api_key_set: true,
            search_api_key_set: true,
            secrets_store: EmptySecretsStore::default(),
            email_verified: None,
            v1_enabled: None,
        };
        let json = serde_json::to_value(&info).unwrap();
        assert_eq!(
            (&json["llm_api_key"], &json["language"]),
            (&Value::Null, &json!("en"))
        );
        assert_eq!(json["provider_tokens_set"], json!({"github": null}));
        // V0's defaults.
        for (field, value) in [
            ("enable_sound_notifications", json!(false)),
            ("enable_proactive_conversation_starters", json!(true)),
            ("enable_solvability_analysis", json!(true)),
            (
                "secrets_store",
                json!({"provider_tokens": {}, "custom_secrets": {}}),
            ),
            ("email_verified", json!(null)),
            ("v1_enabled", json!(null)),
        ] {
            assert_eq!(json.get(field), Some(&value), "{field}");
        }
        assert!(!format!("{info:?} {json}").contains("hunter2"));
        let secret: NewSecret =
            serde_json::from_value(json!({"name": "A", "value": "hunter2"})).unwrap();
        assert!(!format!("{secret:?}").contains("hunter2"));
    }

    #[test]
    fn error_does_not_quote_a_secret_of_another_type() {
        for value in [
            json!(4242),
            json!(["4242"]),
            json!({"a": "4242"}),
            json!(true),
        ] {
            let error =
                serde_json::from_value::<UserSettings>(json!({"llm_api_key": value})).unwrap_err();
            assert_eq!(error.to_string(), "must be a string");
            let error = serde_json::from_value::<NewSecret>(json!({"name": "A", "value": value}))
                .unwrap_err();
            assert_eq!(error.to_string(), "must be a string");
        }
    }

    #[test]
    fn condenser_is_enabled_unless_it_is_turned_off() {
        for (json, expected) in [
            (json!({}), true),
            (json!({"enable_default_condenser": null}), true),
            (json!({"enable_default_condenser": false}), false),
        ] {
            let settings: UserSettings = serde_json::from_value(json).unwrap();
            assert_eq!(settings.enable_default_condenser, expected);
        }
    }
}
