//! Finds the caller of a request by its key or session.

use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};

use crate::caller::{Caller, Credential};
use crate::error::AccountError;
use crate::key::{Key, random_text};
use crate::secret_hash::SecretHash;
use crate::store::{AccountStore, Session};
use crate::time::unix_now;

/// Lifetime of a session.
pub const SESSION_LIFETIME: Duration = Duration::from_hours(30 * 24);

/// Maximum number of sessions of a key. A further one ends the oldest.
pub const MAX_SESSIONS: usize = 100;

/// Resolution of the time at which a key was last used, so that most requests write nothing.
const LAST_USED_RESOLUTION: Duration = Duration::from_mins(1);

/// Finds callers. The operator's key needs no store, so that a server without users reads none.
pub struct Authenticator {
    store: Arc<dyn AccountStore>,
    operator_key: SecretHash,
}

impl Authenticator {
    /// Creates an authenticator with the operator's key.
    pub fn new(store: Arc<dyn AccountStore>, operator_key: &SecretString) -> Self {
        Self {
            store,
            operator_key: SecretHash::new(operator_key.expose_secret().as_bytes()),
        }
    }

    /// Returns the caller with a key. `None` if no user has it, or it has expired.
    ///
    /// # Errors
    /// [`AccountError::Store`].
    pub async fn with_key(&self, key: &[u8]) -> Result<Option<Caller>, AccountError> {
        // Hashes are compared, so that the time does not depend on the number of correct
        // characters.
        let hash = SecretHash::new(key);
        if hash == self.operator_key {
            return Ok(Some(Caller::operator(Credential::Operator)));
        }
        let Some(key) = self.store.find_key(&hash).await? else {
            return Ok(None);
        };
        let credential = Credential::Key(key.id.clone());
        self.with_stored_key(key, credential).await
    }

    /// Returns the caller with a token of a session. `None` if the session has ended, or its key is
    /// revoked or expired.
    ///
    /// # Errors
    /// [`AccountError::Store`].
    pub async fn with_session(&self, token: &[u8]) -> Result<Option<Caller>, AccountError> {
        self.with_session_hash(SecretHash::new(token)).await
    }

    /// Returns the caller with a credential that was valid earlier. `None` if it no longer is.
    ///
    /// # Errors
    /// [`AccountError::Store`].
    pub async fn with_credential(
        &self,
        credential: &Credential,
    ) -> Result<Option<Caller>, AccountError> {
        match credential {
            Credential::Operator => Ok(Some(Caller::operator(Credential::Operator))),
            Credential::Key(id) => match self.store.key(id).await? {
                Some(key) => self.with_stored_key(key, credential.clone()).await,
                None => Ok(None),
            },
            Credential::Session(hash) => self.with_session_hash(*hash).await,
        }
    }

    /// Starts a session, and returns its token. It ends after [`SESSION_LIFETIME`], or with the key
    /// of the caller.
    ///
    /// # Errors
    /// [`AccountError::NoRandomBytes`] or [`AccountError::Store`].
    pub async fn start_session(&self, caller: &Caller) -> Result<SecretString, AccountError> {
        let token = random_text()?;
        let now = unix_now();
        let key = caller
            .key
            .as_ref()
            .map_or_else(|| self.operator_fingerprint(), ToString::to_string);
        let session = Session {
            hash: SecretHash::new(token.as_bytes()),
            key,
            created_at: now,
            expires_at: now.saturating_add(SESSION_LIFETIME.as_secs()),
        };
        self.store.add_session(&session, MAX_SESSIONS).await?;
        Ok(token.into())
    }

    /// Ends the session with a token, if there is one.
    ///
    /// # Errors
    /// [`AccountError::Store`].
    pub async fn end_session(&self, token: &[u8]) -> Result<(), AccountError> {
        self.store.remove_session(&SecretHash::new(token)).await?;
        Ok(())
    }

    async fn with_session_hash(&self, hash: SecretHash) -> Result<Option<Caller>, AccountError> {
        let session = self.store.session(&hash).await?;
        let Some(session) = session.filter(|session| session.expires_at > unix_now()) else {
            return Ok(None);
        };
        let credential = Credential::Session(hash);
        if session.key == self.operator_fingerprint() {
            return Ok(Some(Caller::operator(credential)));
        }
        // An earlier key of the operator is no id.
        let Ok(id) = session.key.parse() else {
            return Ok(None);
        };
        match self.store.key(&id).await? {
            Some(key) => self.with_stored_key(key, credential).await,
            None => Ok(None),
        }
    }

    /// Returns the user with a key that is not expired, and records the use.
    async fn with_stored_key(
        &self,
        key: Key,
        credential: Credential,
    ) -> Result<Option<Caller>, AccountError> {
        let now = unix_now();
        if key.is_expired(now) {
            return Ok(None);
        }
        if key
            .last_used_at
            .is_none_or(|last| last + LAST_USED_RESOLUTION.as_secs() <= now)
        {
            self.store.record_use(&key.id, now).await?;
        }
        let Key {
            id, user, scope, ..
        } = key;
        Ok(Some(Caller {
            user: Some(user),
            scope,
            key: Some(id),
            credential,
        }))
    }

    /// Identifies the operator's key in sessions, which end when it changes. Hashed twice, so that
    /// it is not the hash that the server compares keys with.
    fn operator_fingerprint(&self) -> String {
        let hash = SecretHash::new(
            &[
                b"sessions of the operator".as_slice(),
                self.operator_key.as_bytes(),
            ]
            .concat(),
        );
        format!("operator-{}", hex::encode(hash.as_bytes()))
    }
}
