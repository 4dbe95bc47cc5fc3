//! Settings, tokens and secrets of users, and of the operator.
//!
//! [`UserProfiles`] keeps one document per user in a [`ProfileStore`], which encrypts it. The
//! operator is the owner `None`. What a user may choose is less than what the operator may: the
//! [`SettingsPolicy`] decides. Values of secrets leave this module only to compose a conversation.

mod document;
mod error;
mod limits;
mod mcp_config;
mod store;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::secrets::Secret;
use protocol::UserId;
use protocol::client_api::git::GitProvider;
use protocol::client_api::v2::profile::{SecretEntry, SecretEntryList, SetSecret, SettingsChange};
use protocol::client_api::{
    EmptySecretsStore, GitTokenRequest, GitTokensRequest, NewSecret, SecretUpdate, UserSettings,
    UserSettingsInfo,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use crate::host::HostError;

pub use error::{InvalidSetting, ProfileError};
pub use store::{ProfileStore, StoredProfile};

/// Maximum number of attempts to write a profile that other processes are changing.
const MAX_WRITE_ATTEMPTS: u32 = 16;

/// What a user has stored. `Debug` omits the values of secrets.
#[derive(Debug, Clone, Default)]
pub struct UserProfile {
    /// The settings. `None` if the user has stored none.
    pub settings: Option<UserSettings>,
    /// Tokens of git providers.
    pub git_tokens: BTreeMap<GitProvider, GitToken>,
    /// Secrets that commands can use, by name.
    pub secrets: BTreeMap<String, Secret>,
}

/// A token of a git provider.
#[derive(Debug, Clone)]
pub struct GitToken {
    /// The token.
    pub token: SecretString,
    /// The user's id at the provider.
    pub user_id: Option<String>,
    /// The provider's host. `None` for its own.
    pub host: Option<String>,
}

/// Decides which settings a user may choose. Implemented by the composition root, from the
/// operator's configuration.
pub trait SettingsPolicy: Send + Sync {
    /// Checks the settings.
    ///
    /// # Errors
    /// The first setting that is not allowed, or has no effect that the user could expect.
    fn check(&self, settings: &UserSettings) -> Result<(), InvalidSetting>;
}

/// The profiles of all users.
pub struct UserProfiles {
    store: Arc<dyn ProfileStore>,
    policy: Arc<dyn SettingsPolicy>,
    /// Changes of this process wait for each other instead of repeating.
    changing: tokio::sync::Mutex<()>,
}

impl UserProfiles {
    /// Creates the profiles of a store.
    pub fn new(store: Arc<dyn ProfileStore>, policy: Arc<dyn SettingsPolicy>) -> Self {
        Self {
            store,
            policy,
            changing: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the profile of a user, which is empty if nothing is stored.
    ///
    /// # Errors
    /// [`ProfileError::Store`].
    pub async fn load(&self, owner: Option<&UserId>) -> Result<UserProfile, ProfileError> {
        Ok(self.read(owner).await?.1)
    }

    /// Returns the settings of a user without the values of keys.
    ///
    /// # Errors
    /// [`ProfileError::NoSettings`] or [`ProfileError::Store`].
    pub async fn settings(&self, owner: Option<&UserId>) -> Result<UserSettingsInfo, ProfileError> {
        let profile = self.load(owner).await?;
        let mut settings = profile.settings.ok_or(ProfileError::NoSettings)?;
        let mcp_config = settings.mcp_config.as_ref().map(mcp_config::mask);
        settings.mcp_config = mcp_config.map(mcp_config::complete);
        let host = |(provider, token): (&GitProvider, &GitToken)| (*provider, token.host.clone());
        Ok(UserSettingsInfo {
            provider_tokens_set: profile.git_tokens.iter().map(host).collect(),
            llm_api_key_set: settings.llm_api_key.is_some(),
            search_api_key_set: settings.search_api_key.is_some(),
            secrets_store: EmptySecretsStore::default(),
            email_verified: None,
            v1_enabled: None,
            settings: UserSettings {
                llm_api_key: None,
                search_api_key: None,
                sandbox_api_key: None,
                ..settings
            },
        })
    }

    /// Changes the settings of a user: those whose names are `given`. Model, base URL, keys and
    /// consent keep their stored values if they are `None`; an empty text removes them.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`], [`ProfileError::Contended`] or [`ProfileError::Store`].
    pub async fn save_settings(
        &self,
        owner: Option<&UserId>,
        settings: UserSettings,
        given: &BTreeSet<String>,
    ) -> Result<(), ProfileError> {
        limits::check_settings(&settings)?;
        self.change(owner, |profile| {
            let stored = profile.settings.take().unwrap_or_default();
            let settings = merge(keep_others(settings.clone(), &stored, given)?, stored);
            self.policy.check(&settings)?;
            profile.settings = Some(settings);
            Ok(())
        })
        .await
    }

    /// Changes the fields of the settings that are named, as
    /// [`save_settings`](Self::save_settings) does.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`], also for an unknown field, [`ProfileError::Contended`] or
    /// [`ProfileError::Store`].
    pub async fn change_settings(
        &self,
        owner: Option<&UserId>,
        SettingsChange(fields): SettingsChange,
    ) -> Result<(), ProfileError> {
        let given: BTreeSet<String> = fields.keys().cloned().collect();
        let invalid = |problem: String| InvalidSetting::new("settings", problem);
        let known = serde_json::to_value(UserSettings::default()).unwrap_or_default();
        if let Some(name) = given.iter().find(|name| known.get(name).is_none()) {
            return Err(invalid(format!("there is no setting `{name}`")).into());
        }
        // No error quotes a value.
        let parse = |fields| serde_json::from_value::<UserSettings>(Value::Object(fields));
        for (name, value) in &fields {
            if parse([(name.clone(), value.clone())].into_iter().collect()).is_err() {
                return Err(invalid(format!("`{name}` has the wrong type")).into());
            }
        }
        let settings = parse(fields);
        let settings = settings.map_err(|_| invalid("must be settings".to_owned()))?;
        self.save_settings(owner, settings, &given).await
    }

    /// Returns the tokens that a request would store: new ones, and stored ones for another host.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`] or [`ProfileError::Store`].
    pub async fn changed_git_tokens(
        &self,
        owner: Option<&UserId>,
        request: &GitTokensRequest,
    ) -> Result<BTreeMap<GitProvider, GitToken>, ProfileError> {
        limits::check_git_tokens(request)?;
        let stored = self.load(owner).await?.git_tokens;
        let changed = request
            .provider_tokens
            .iter()
            .filter_map(|(provider, given)| {
                let stored = stored.get(provider);
                let is_new = given.token.as_ref().is_some_and(is_not_empty);
                let token = merge_git_token(given.clone(), stored)?;
                let is_changed = is_new || stored.is_none_or(|stored| stored.host != token.host);
                is_changed.then_some((*provider, token))
            });
        Ok(changed.collect())
    }

    /// Stores tokens of git providers. Those of other providers stay.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`], [`ProfileError::Contended`] or [`ProfileError::Store`].
    pub async fn add_git_tokens(
        &self,
        owner: Option<&UserId>,
        request: GitTokensRequest,
    ) -> Result<(), ProfileError> {
        limits::check_git_tokens(&request)?;
        self.change(owner, |profile| {
            for (provider, given) in request.provider_tokens.clone() {
                let stored = profile.git_tokens.remove(&provider);
                let token = merge_git_token(given, stored.as_ref());
                profile
                    .git_tokens
                    .extend(token.map(|token| (provider, token)));
            }
            if let Some(mut config) = request.mcp_config.clone() {
                let settings = profile.settings.get_or_insert_default();
                mcp_config::unmask(&mut config, settings.mcp_config.as_ref());
                settings.mcp_config = Some(config);
            }
            Ok(())
        })
        .await
    }

    /// Removes all tokens of git providers.
    ///
    /// # Errors
    /// [`ProfileError::Contended`] or [`ProfileError::Store`].
    pub async fn remove_git_tokens(&self, owner: Option<&UserId>) -> Result<(), ProfileError> {
        self.change(owner, |profile| {
            profile.git_tokens.clear();
            Ok(())
        })
        .await
    }

    /// Returns the secrets of a user, without their values.
    ///
    /// # Errors
    /// [`ProfileError::Store`].
    pub async fn secrets(&self, owner: Option<&UserId>) -> Result<SecretEntryList, ProfileError> {
        let secrets = self.load(owner).await?.secrets.into_iter();
        let entries = secrets.map(|(name, secret)| SecretEntry {
            name,
            description: secret.description,
        });
        Ok(SecretEntryList {
            secrets: entries.collect(),
        })
    }

    /// Stores a secret, in place of one of the same name.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`], [`ProfileError::Contended`] or [`ProfileError::Store`].
    pub async fn set_secret(
        &self,
        owner: Option<&UserId>,
        name: &str,
        SetSecret { value, description }: SetSecret,
    ) -> Result<(), ProfileError> {
        let secret = Secret { value, description };
        limits::check_secret(name, &secret)?;
        self.change(owner, |profile| {
            profile.secrets.insert(name.to_owned(), secret.clone());
            limits::check_all_secrets(profile)
        })
        .await
    }

    /// Stores a new secret.
    ///
    /// # Errors
    /// [`ProfileError::SecretExists`], [`ProfileError::Invalid`], [`ProfileError::Contended`] or
    /// [`ProfileError::Store`].
    pub async fn add_secret(
        &self,
        owner: Option<&UserId>,
        secret: NewSecret,
    ) -> Result<(), ProfileError> {
        let NewSecret {
            name,
            value,
            description,
        } = secret;
        let secret = Secret {
            value,
            description: description.unwrap_or_default(),
        };
        limits::check_secret(&name, &secret)?;
        self.change(owner, |profile| {
            if profile.secrets.contains_key(&name) {
                return Err(ProfileError::SecretExists(name.clone()));
            }
            profile.secrets.insert(name.clone(), secret.clone());
            limits::check_all_secrets(profile)
        })
        .await
    }

    /// Renames and describes a secret. Its value stays.
    ///
    /// # Errors
    /// [`ProfileError::UnknownSecret`], [`ProfileError::SecretExists`], [`ProfileError::Invalid`],
    /// [`ProfileError::Contended`] or [`ProfileError::Store`].
    pub async fn update_secret(
        &self,
        owner: Option<&UserId>,
        name: &str,
        update: SecretUpdate,
    ) -> Result<(), ProfileError> {
        self.change(owner, |profile| {
            let unknown = || ProfileError::UnknownSecret(name.to_owned());
            let mut secret = profile.secrets.remove(name).ok_or_else(unknown)?;
            secret.description = update.description.clone().unwrap_or_default();
            limits::check_secret(&update.name, &secret)?;
            match profile.secrets.insert(update.name.clone(), secret) {
                Some(_) => Err(ProfileError::SecretExists(update.name.clone())),
                None => Ok(()),
            }
        })
        .await
    }

    /// Removes a secret.
    ///
    /// # Errors
    /// [`ProfileError::UnknownSecret`], [`ProfileError::Contended`] or [`ProfileError::Store`].
    pub async fn remove_secret(
        &self,
        owner: Option<&UserId>,
        name: &str,
    ) -> Result<(), ProfileError> {
        self.change(owner, |profile| {
            let removed = profile.secrets.remove(name);
            removed
                .map(drop)
                .ok_or_else(|| ProfileError::UnknownSecret(name.to_owned()))
        })
        .await
    }

    /// Removes everything that a user has stored.
    ///
    /// # Errors
    /// [`ProfileError::Store`].
    pub async fn remove(&self, user: &UserId) -> Result<(), ProfileError> {
        let _changing = self.changing.lock().await;
        Ok(self.store.remove(Some(user)).await?)
    }

    /// Changes a profile, again with what another process has written if that was faster.
    async fn change(
        &self,
        owner: Option<&UserId>,
        change: impl Fn(&mut UserProfile) -> Result<(), ProfileError> + Send,
    ) -> Result<(), ProfileError> {
        let _changing = self.changing.lock().await;
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let (revision, mut profile) = self.read(owner).await?;
            change(&mut profile)?;
            let content = document::to_bytes(&profile)?;
            if self.store.write(owner, revision, content).await? {
                return Ok(());
            }
        }
        Err(ProfileError::Contended)
    }

    /// Returns the revision and the profile.
    async fn read(&self, owner: Option<&UserId>) -> Result<(u64, UserProfile), ProfileError> {
        match self.store.read(owner).await? {
            Some(stored) => Ok((
                stored.revision,
                document::from_bytes(stored.content.expose_secret())?,
            )),
            None => Ok((0, UserProfile::default())),
        }
    }
}

/// Returns new settings with the stored values of those that are not given, except keys.
fn keep_others(
    new: UserSettings,
    stored: &UserSettings,
    given: &BTreeSet<String>,
) -> Result<UserSettings, ProfileError> {
    let failed = |error: serde_json::Error| ProfileError::Store(HostError::Failed(error.into()));
    let to_value = |settings: &UserSettings| serde_json::to_value(settings).map_err(failed);
    let (mut merged, mut kept) = (to_value(&new)?, to_value(stored)?);
    for (name, value) in merged.as_object_mut().into_iter().flatten() {
        if !given.contains(name) {
            *value = kept[name].take();
        }
    }
    let merged: UserSettings = serde_json::from_value(merged).map_err(failed)?;
    // Not in the JSON.
    let UserSettings {
        llm_api_key,
        search_api_key,
        sandbox_api_key,
        ..
    } = new;
    Ok(UserSettings {
        llm_api_key,
        search_api_key,
        sandbox_api_key,
        ..merged
    })
}

/// Adds stored values to new settings.
fn merge(mut new: UserSettings, stored: UserSettings) -> UserSettings {
    let key = |new: Option<SecretString>, stored| new.or(stored).filter(is_not_empty);
    let text = |new: Option<String>, stored| new.or(stored).filter(|text| !text.trim().is_empty());
    new.llm_api_key = key(new.llm_api_key.take(), stored.llm_api_key);
    new.search_api_key = key(new.search_api_key.take(), stored.search_api_key);
    new.sandbox_api_key = key(new.sandbox_api_key.take(), stored.sandbox_api_key);
    new.llm_model = text(new.llm_model.take(), stored.llm_model);
    new.llm_base_url = text(new.llm_base_url.take(), stored.llm_base_url);
    new.user_consents_to_analytics = new
        .user_consents_to_analytics
        .or(stored.user_consents_to_analytics);
    if let Some(config) = &mut new.mcp_config {
        mcp_config::unmask(config, stored.mcp_config.as_ref());
    }
    new
}

/// Returns the token that a request stores. `None` if neither it nor the profile has one.
fn merge_git_token(given: GitTokenRequest, stored: Option<&GitToken>) -> Option<GitToken> {
    let stored = stored.map(|stored| stored.token.clone());
    Some(GitToken {
        token: given.token.filter(is_not_empty).or(stored)?,
        user_id: given.user_id,
        host: given.host.filter(|host| !host.trim().is_empty()),
    })
}

fn is_not_empty(secret: &SecretString) -> bool {
    !secret.expose_secret().trim().is_empty()
}
