//! The service for what a user can choose, and for the user's settings and secrets.

use std::sync::Arc;

use async_trait::async_trait;
use protocol::UserId;
use protocol::client_api::UserSettingsInfo;
use protocol::client_api::v2::profile::{
    OfferedAgents, OfferedModels, SecretEntryList, SetSecret, SettingsChange,
};

use crate::profile::UserProfiles;
use crate::service::ServiceError;

/// What one user can choose, and the user's settings and secrets. Implemented in process by
/// [`OwnProfile`], and over HTTP by the crate `client`.
#[async_trait]
pub trait ProfileService: Send + Sync {
    /// Returns the models that users can choose.
    async fn models(&self) -> Result<OfferedModels, ServiceError>;

    /// Returns the agents that users can choose.
    async fn agents(&self) -> Result<OfferedAgents, ServiceError>;

    /// Returns the settings, without keys. Fails if none are stored.
    async fn settings(&self) -> Result<UserSettingsInfo, ServiceError>;

    /// Changes settings. Model, base URL and keys that are `null` keep their values.
    async fn change_settings(&self, change: SettingsChange) -> Result<(), ServiceError>;

    /// Returns the secrets, without their values.
    async fn secrets(&self) -> Result<SecretEntryList, ServiceError>;

    /// Stores a secret. One of the same name is replaced.
    async fn set_secret(&self, name: &str, secret: SetSecret) -> Result<(), ServiceError>;

    /// Removes a secret.
    async fn remove_secret(&self, name: &str) -> Result<(), ServiceError>;
}

/// Values of settings that users can choose.
#[derive(Debug, Default, Clone)]
pub struct Choices {
    /// Names of models.
    pub models: Vec<String>,
    /// Names of agents.
    pub agents: Vec<String>,
    /// Names of security analyzers.
    pub security_analyzers: Vec<String>,
}

/// The profile of one user of a server, or of the operator.
pub struct OwnProfile {
    profiles: Arc<UserProfiles>,
    choices: Choices,
    /// `None` for the operator.
    user: Option<UserId>,
}

impl OwnProfile {
    /// Returns the profile of a user. `None` for the operator.
    pub fn new(profiles: Arc<UserProfiles>, choices: Choices, user: Option<UserId>) -> Self {
        Self {
            profiles,
            choices,
            user,
        }
    }
}

#[async_trait]
impl ProfileService for OwnProfile {
    async fn models(&self) -> Result<OfferedModels, ServiceError> {
        Ok(OfferedModels {
            models: self.choices.models.clone(),
        })
    }

    async fn agents(&self) -> Result<OfferedAgents, ServiceError> {
        Ok(OfferedAgents {
            agents: self.choices.agents.clone(),
        })
    }

    async fn settings(&self) -> Result<UserSettingsInfo, ServiceError> {
        Ok(self.profiles.settings(self.user.as_ref()).await?)
    }

    async fn change_settings(&self, change: SettingsChange) -> Result<(), ServiceError> {
        let changed = self.profiles.change_settings(self.user.as_ref(), change);
        Ok(changed.await?)
    }

    async fn secrets(&self) -> Result<SecretEntryList, ServiceError> {
        Ok(self.profiles.secrets(self.user.as_ref()).await?)
    }

    async fn set_secret(&self, name: &str, secret: SetSecret) -> Result<(), ServiceError> {
        let set = self.profiles.set_secret(self.user.as_ref(), name, secret);
        Ok(set.await?)
    }

    async fn remove_secret(&self, name: &str) -> Result<(), ServiceError> {
        let removed = self.profiles.remove_secret(self.user.as_ref(), name);
        Ok(removed.await?)
    }
}
