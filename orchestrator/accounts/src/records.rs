//! Everything that a store has of users and keys, for copies to another store. Sessions are not
//! part of it.

use std::collections::{BTreeMap, BTreeSet};

use protocol::UserId;

use crate::key::{Key, KeyId};
use crate::secret_hash::SecretHash;
use crate::store::User;
use crate::users::MAX_KEYS;

/// A key with the hash by which a store finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// The key.
    pub key: Key,
    /// Hash of its secret.
    pub hash: SecretHash,
}

/// Users and their keys, which belong together: each key has one of the users, who is not removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountRecords {
    users: Vec<User>,
    keys: Vec<KeyRecord>,
    /// Keys that were removed.
    revoked: BTreeSet<KeyId>,
}

/// Why users and keys do not belong together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRecords {
    /// Two users have one name.
    #[error("two users have the name {0}")]
    RepeatedUser(UserId),
    /// The user of a key does not exist, or is removed.
    #[error("the key {0} belongs to no user")]
    NoUser(KeyId),
    /// The id of a key is not that of its hash, or two keys have one id.
    #[error("the key {0} has the id of another one")]
    WrongId(KeyId),
    /// A user has more keys than a user may have.
    #[error("the user {0} has more than {MAX_KEYS} keys")]
    TooManyKeys(UserId),
}

/// What was added to a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AddedAccounts {
    /// Number of users.
    pub users: usize,
    /// Number of their keys.
    pub keys: usize,
}

impl AccountRecords {
    /// Checks that users and keys belong together.
    ///
    /// # Errors
    /// See [`InvalidRecords`].
    pub fn new(users: Vec<User>, keys: Vec<KeyRecord>) -> Result<Self, InvalidRecords> {
        let mut key_counts = BTreeMap::new();
        for user in &users {
            if key_counts
                .insert(&user.name, user.removed_at.is_none().then_some(0))
                .is_some()
            {
                return Err(InvalidRecords::RepeatedUser(user.name.clone()));
            }
        }
        let mut ids = BTreeSet::new();
        for KeyRecord { key, hash } in &keys {
            let Some(Some(count)) = key_counts.get_mut(&key.user) else {
                return Err(InvalidRecords::NoUser(key.id.clone()));
            };
            *count += 1;
            if *count > MAX_KEYS {
                return Err(InvalidRecords::TooManyKeys(key.user.clone()));
            }
            if key.id != KeyId::new(hash) || !ids.insert(&key.id) {
                return Err(InvalidRecords::WrongId(key.id.clone()));
            }
        }
        Ok(Self {
            users,
            keys,
            revoked: BTreeSet::new(),
        })
    }

    /// Sets the ids of the keys that were revoked, or whose user was removed.
    #[must_use]
    pub fn with_revoked(self, revoked: impl IntoIterator<Item = KeyId>) -> Self {
        Self {
            revoked: revoked.into_iter().collect(),
            ..self
        }
    }

    /// Returns the users, also removed ones.
    pub fn users(&self) -> &[User] {
        &self.users
    }

    /// Returns the keys of all users.
    pub fn keys(&self) -> &[KeyRecord] {
        &self.keys
    }

    /// Returns the ids of the keys that were revoked, or whose user was removed.
    pub fn revoked(&self) -> &BTreeSet<KeyId> {
        &self.revoked
    }

    /// Returns the part that a store with these users lacks: the other users with their keys.
    #[must_use]
    pub fn without(&self, existing: &[User]) -> Self {
        let existing: BTreeSet<_> = existing.iter().map(|user| &user.name).collect();
        let users = self
            .users
            .iter()
            .filter(|user| !existing.contains(&user.name))
            .cloned();
        let keys = self
            .keys
            .iter()
            .filter(|record| !existing.contains(&record.key.user))
            .cloned();
        Self {
            users: users.collect(),
            keys: keys.collect(),
            revoked: BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyScope, NewKey};

    fn user(name: &str, removed_at: Option<u64>) -> User {
        User {
            name: name.parse().unwrap(),
            created_at: 1,
            removed_at,
        }
    }

    fn key(name: &str) -> KeyRecord {
        let (new, hash) = NewKey::generate(name.parse().unwrap(), KeyScope::Read, 1, None).unwrap();
        KeyRecord { key: new.key, hash }
    }

    #[test]
    fn records_are_rejected_when_they_do_not_belong_together() {
        let (ada, ben) = (user("ada", None), user("ben", Some(2)));
        let (own, removed) = (key("ada"), key("ben"));
        assert!(AccountRecords::new(vec![ada.clone(), ben.clone()], vec![own.clone()]).is_ok());
        let mut forged = own.clone();
        forged.hash = removed.hash;
        let many: Vec<_> = (0..=MAX_KEYS).map(|_| key("ada")).collect();
        let name = ada.name.clone();
        for (users, keys, expected) in [
            (
                vec![ada.clone(), ada.clone()],
                vec![],
                InvalidRecords::RepeatedUser(name.clone()),
            ),
            (
                vec![ada.clone(), ben],
                vec![removed.clone()],
                InvalidRecords::NoUser(removed.key.id),
            ),
            (
                vec![],
                vec![own.clone()],
                InvalidRecords::NoUser(own.key.id.clone()),
            ),
            (
                vec![ada.clone()],
                vec![forged],
                InvalidRecords::WrongId(own.key.id.clone()),
            ),
            (
                vec![ada.clone()],
                vec![own.clone(), own.clone()],
                InvalidRecords::WrongId(own.key.id),
            ),
            (vec![ada], many, InvalidRecords::TooManyKeys(name)),
        ] {
            assert_eq!(AccountRecords::new(users, keys), Err(expected));
        }
    }

    #[test]
    fn keys_of_existing_users_are_not_missing() {
        let records = AccountRecords::new(
            vec![user("ada", None), user("ben", None)],
            vec![key("ada"), key("ben")],
        );
        let missing = records.unwrap().without(&[user("ada", Some(1))]);
        assert_eq!(missing.users(), [user("ben", None)]);
        assert!(
            missing
                .keys()
                .iter()
                .map(|record| record.key.user.as_str())
                .eq(["ben"])
        );
    }
}
