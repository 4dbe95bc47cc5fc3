//! The JSON of a stored profile. The only place that serializes values of secrets: the store
//! encrypts the result.

use std::collections::BTreeMap;

use engine::secrets::Secret;
use protocol::client_api::UserSettings;
use protocol::client_api::git::GitProvider;
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::{InvalidSetting, ProfileError};
use super::{GitToken, UserProfile};
use crate::host::HostError;

/// Maximum size of a document, in bytes.
const MAX_DOCUMENT_BYTES: usize = 512 << 10;

#[derive(Serialize, Deserialize)]
struct Document {
    /// Without keys, which the settings never serialize.
    settings: Option<UserSettings>,
    llm_api_key: Option<ExposedSecret>,
    search_api_key: Option<ExposedSecret>,
    sandbox_api_key: Option<ExposedSecret>,
    git_tokens: BTreeMap<GitProvider, StoredToken>,
    secrets: BTreeMap<String, StoredSecret>,
}

#[derive(Serialize, Deserialize)]
struct StoredToken {
    token: ExposedSecret,
    user_id: Option<String>,
    host: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct StoredSecret {
    value: ExposedSecret,
    description: String,
}

/// A secret that is serialized with its value.
struct ExposedSecret(SecretString);

impl Serialize for ExposedSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.expose_secret())
    }
}

impl<'de> Deserialize<'de> for ExposedSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(text.into()))
    }
}

/// The error of a document that this program has not written. Omits serde's text, which could quote
/// a value.
#[derive(Debug, thiserror::Error)]
#[error("cannot parse the stored settings: {category:?} error at byte {column}")]
struct InvalidDocument {
    category: serde_json::error::Category,
    column: usize,
}

pub(super) fn to_bytes(profile: &UserProfile) -> Result<SecretSlice<u8>, ProfileError> {
    let key = |key: fn(&UserSettings) -> &Option<SecretString>| {
        profile
            .settings
            .as_ref()
            .and_then(|settings| key(settings).clone())
            .map(ExposedSecret)
    };
    let to_token = |(provider, token): (&GitProvider, &GitToken)| {
        let GitToken {
            token,
            user_id,
            host,
        } = token.clone();
        (
            *provider,
            StoredToken {
                token: ExposedSecret(token),
                user_id,
                host,
            },
        )
    };
    let to_secret = |(name, secret): (&String, &Secret)| {
        let Secret { value, description } = secret.clone();
        (
            name.clone(),
            StoredSecret {
                value: ExposedSecret(value),
                description,
            },
        )
    };
    let document = Document {
        settings: profile.settings.clone(),
        llm_api_key: key(|settings| &settings.llm_api_key),
        search_api_key: key(|settings| &settings.search_api_key),
        sandbox_api_key: key(|settings| &settings.sandbox_api_key),
        git_tokens: profile.git_tokens.iter().map(to_token).collect(),
        secrets: profile.secrets.iter().map(to_secret).collect(),
    };
    let bytes = serde_json::to_vec(&document).map_err(|error| invalid(&error))?;
    if bytes.len() > MAX_DOCUMENT_BYTES {
        let problem = format!("all settings together have more than {MAX_DOCUMENT_BYTES} bytes");
        return Err(InvalidSetting::new("body", problem).into());
    }
    Ok(bytes.into())
}

pub(super) fn from_bytes(content: &[u8]) -> Result<UserProfile, ProfileError> {
    let document: Document = serde_json::from_slice(content).map_err(|error| invalid(&error))?;
    let key = |key: Option<ExposedSecret>| key.map(|key| key.0);
    let settings = document.settings.map(|settings| UserSettings {
        llm_api_key: key(document.llm_api_key),
        search_api_key: key(document.search_api_key),
        sandbox_api_key: key(document.sandbox_api_key),
        ..settings
    });
    let to_token = |(
        provider,
        StoredToken {
            token,
            user_id,
            host,
        },
    )| {
        (
            provider,
            GitToken {
                token: token.0,
                user_id,
                host,
            },
        )
    };
    let to_secret = |(name, StoredSecret { value, description })| {
        (
            name,
            Secret {
                value: value.0,
                description,
            },
        )
    };
    Ok(UserProfile {
        settings,
        git_tokens: document.git_tokens.into_iter().map(to_token).collect(),
        secrets: document.secrets.into_iter().map(to_secret).collect(),
    })
}

fn invalid(error: &serde_json::Error) -> ProfileError {
    let error = InvalidDocument {
        category: error.classify(),
        column: error.column(),
    };
    HostError::Failed(error.into()).into()
}
