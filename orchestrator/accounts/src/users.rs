//! Administration of users and keys.

use std::sync::Arc;
use std::time::Duration;

use protocol::UserId;

use crate::error::AccountError;
use crate::key::{Key, KeyId, KeyScope, NewKey};
use crate::store::{AccountStore, User};
use crate::time::unix_now;

/// Maximum number of keys of a user.
pub const MAX_KEYS: usize = 100;

/// Maximum length of a new user's name, in bytes. It can then be in a host name.
const MAX_NAME_LENGTH: usize = 63;

/// The users of a store, and their keys.
#[derive(Clone)]
pub struct Users {
    store: Arc<dyn AccountStore>,
}

impl Users {
    /// Creates the administration of a store.
    pub fn new(store: Arc<dyn AccountStore>) -> Self {
        Self { store }
    }

    /// Adds a user.
    ///
    /// # Errors
    /// [`AccountError::InvalidName`], [`AccountError::UserExists`], [`AccountError::UserRemoved`]
    /// or [`AccountError::Store`].
    pub async fn add(&self, name: &UserId) -> Result<(), AccountError> {
        check_name(name)?;
        match self.store.user(name).await? {
            Some(User {
                removed_at: None, ..
            }) => Err(AccountError::UserExists(name.clone())),
            Some(_) => Err(AccountError::UserRemoved(name.clone())),
            None => Ok(self.store.put_user(name, unix_now()).await?),
        }
    }

    /// Restores a removed user, who owns the same conversations as before and has no key.
    ///
    /// # Errors
    /// [`AccountError::UnknownUser`], [`AccountError::UserExists`] or [`AccountError::Store`].
    pub async fn restore(&self, name: &UserId) -> Result<(), AccountError> {
        match self.store.user(name).await? {
            Some(User {
                removed_at: None, ..
            }) => Err(AccountError::UserExists(name.clone())),
            Some(_) => Ok(self.store.put_user(name, unix_now()).await?),
            None => Err(AccountError::UnknownUser(name.clone())),
        }
    }

    /// Removes a user with all keys and sessions. The conversations stay, for the operator.
    ///
    /// # Errors
    /// [`AccountError::UnknownUser`] or [`AccountError::Store`].
    pub async fn remove(&self, name: &UserId) -> Result<(), AccountError> {
        match self.store.remove_user(name, unix_now()).await? {
            true => Ok(()),
            false => Err(AccountError::UnknownUser(name.clone())),
        }
    }

    /// Returns all users by name, without removed ones.
    ///
    /// # Errors
    /// [`AccountError::Store`].
    pub async fn list(&self) -> Result<Vec<User>, AccountError> {
        let mut users = self.store.users().await?;
        users.retain(|user| user.removed_at.is_none());
        Ok(users)
    }

    /// Adds a key of a user, which expires after `lifetime`, or never.
    ///
    /// # Errors
    /// [`AccountError::UnknownUser`], [`AccountError::TooManyKeys`],
    /// [`AccountError::NoRandomBytes`] or [`AccountError::Store`].
    pub async fn add_key(
        &self,
        user: &UserId,
        scope: KeyScope,
        lifetime: Option<Duration>,
    ) -> Result<NewKey, AccountError> {
        let now = unix_now();
        let expires_at = lifetime.map(|lifetime| now.saturating_add(lifetime.as_secs()));
        let (new, hash) = NewKey::generate(user.clone(), scope, now, expires_at)?;
        if self.store.add_key(&new.key, &hash, MAX_KEYS).await? {
            return Ok(new);
        }
        match self.store.user(user).await? {
            Some(User {
                removed_at: None, ..
            }) => Err(AccountError::TooManyKeys {
                user: user.clone(),
                max: MAX_KEYS,
            }),
            _ => Err(AccountError::UnknownUser(user.clone())),
        }
    }

    /// Returns the keys of a user, or of all users.
    ///
    /// # Errors
    /// [`AccountError::UnknownUser`] or [`AccountError::Store`].
    pub async fn keys(&self, user: Option<&UserId>) -> Result<Vec<Key>, AccountError> {
        if let Some(name) = user
            && self
                .store
                .user(name)
                .await?
                .is_none_or(|user| user.removed_at.is_some())
        {
            return Err(AccountError::UnknownUser(name.clone()));
        }
        Ok(self.store.keys(user).await?)
    }

    /// Revokes a key, with the sessions that were started with it.
    ///
    /// # Errors
    /// [`AccountError::UnknownKey`] or [`AccountError::Store`].
    pub async fn revoke_key(&self, id: &KeyId) -> Result<(), AccountError> {
        match self.store.remove_key(id).await? {
            true => Ok(()),
            false => Err(AccountError::UnknownKey(id.to_string())),
        }
    }
}

/// Names that the audit log shows for others than users.
const RESERVED_NAMES: [&str; 2] = ["operator", "unknown"];

/// Checks the name of a new user. Names that differ only by case would be confused.
fn check_name(name: &UserId) -> Result<(), AccountError> {
    let text = name.as_str();
    let is_valid = text.len() <= MAX_NAME_LENGTH
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && !text.contains(|character: char| character.is_ascii_uppercase());
    let is_valid = is_valid && !RESERVED_NAMES.contains(&text);
    if is_valid {
        Ok(())
    } else {
        Err(AccountError::InvalidName(text.to_owned()))
    }
}
