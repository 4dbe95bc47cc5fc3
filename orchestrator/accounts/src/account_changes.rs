//! What a repeated copy changes in the users and keys of its target.

use std::collections::{BTreeMap, BTreeSet};

use protocol::UserId;

use crate::key::{Key, KeyId};
use crate::records::{AccountRecords, AddedAccounts, KeyRecord};
use crate::store::{AccountStore, StoreFailure, User};
use crate::users::MAX_KEYS;

/// The changes that make a target like its source, as far as both descend from one store.
///
/// A removal wins over everything else: a key that was revoked in one of the stores, or whose user
/// was removed there, is valid in neither. Keys do not change otherwise. Users of one name and one
/// time of creation are the same: no operation changes that time.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AccountChanges {
    /// Users that the target lacks, with their keys.
    missing: AccountRecords,
    /// Users who are removed in the source, with the time of the removal.
    removed: Vec<(UserId, u64)>,
    /// Keys to revoke of other users.
    revoked: Vec<KeyId>,
    /// Keys to add to existing users.
    added: Vec<KeyRecord>,
    /// Number of keys that the removals of users end.
    ended_keys: usize,
    differences: Vec<AccountDifference>,
}

/// A difference that a copy cannot explain, and leaves as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountDifference {
    /// The user.
    pub user: UserId,
    /// How the stores differ.
    pub kind: AccountDifferenceKind,
}

/// How two stores differ in a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountDifferenceKind {
    /// The user of this name was added to each of the stores.
    OtherUser,
    /// The user is removed in the target only.
    RemovedInTarget,
    /// Valid keys that the source does not know: they were added to the target, or revoked in a
    /// source that did not record it.
    KeysOfTarget(Vec<KeyId>),
    /// The user has so many keys in the target that this key was not added.
    TooManyKeys(KeyId),
}

/// What was changed in a target.
#[derive(Debug, Default)]
pub struct ChangedAccounts {
    /// What was added.
    pub added: AddedAccounts,
    /// Users who are removed in both stores, now or before.
    pub users_without_account: Vec<UserId>,
    /// Number of users who were removed now.
    pub removed_users: usize,
    /// Number of keys that were revoked, also with their users.
    pub removed_keys: usize,
    /// What differs still.
    pub differences: Vec<AccountDifference>,
}

impl AccountChanges {
    /// Compares a source with its target.
    pub fn between(source: &AccountRecords, target: &AccountRecords) -> Self {
        let mut changes = Self {
            missing: source.without(target.users()),
            ..Self::default()
        };
        let existing: BTreeMap<_, _> = target
            .users()
            .iter()
            .map(|user| (&user.name, user))
            .collect();
        let (source_keys, target_keys) = (ids(source), ids(target));
        for user in source.users() {
            let Some(found) = existing.get(&user.name) else {
                continue;
            };
            let is_revoked = |key: &&KeyRecord| source.revoked().contains(&key.key.id);
            let of_target = || keys_of(target, user);
            let kind = match (user.removed_at, found.removed_at) {
                _ if user.created_at != found.created_at => Some(AccountDifferenceKind::OtherUser),
                (Some(at), _) => {
                    changes.removed.push((user.name.clone(), at));
                    changes.ended_keys += of_target().count();
                    continue;
                }
                (None, Some(_)) => Some(AccountDifferenceKind::RemovedInTarget),
                (None, None) => {
                    let is_new = |key: &&KeyRecord| {
                        let id = &key.key.id;
                        !target_keys.contains(id)
                            && !target.revoked().contains(id)
                            && !source.revoked().contains(id)
                    };
                    changes
                        .added
                        .extend(keys_of(source, user).filter(is_new).cloned());
                    let unknown: Vec<_> = of_target()
                        .filter(|key| !source_keys.contains(&key.key.id) && !is_revoked(key))
                        .map(|key| key.key.id.clone())
                        .collect();
                    (!unknown.is_empty()).then_some(AccountDifferenceKind::KeysOfTarget(unknown))
                }
            };
            changes
                .revoked
                .extend(of_target().filter(is_revoked).map(|key| key.key.id.clone()));
            changes
                .differences
                .extend(kind.map(|kind| AccountDifference {
                    user: user.name.clone(),
                    kind,
                }));
        }
        changes
    }

    /// Makes the changes, removals first. After a failure, a repetition makes the rest.
    ///
    /// # Errors
    /// See [`AccountStore`].
    pub async fn apply(self, store: &dyn AccountStore) -> Result<ChangedAccounts, StoreFailure> {
        let mut changed = ChangedAccounts {
            removed_keys: self.ended_keys,
            differences: self.differences,
            ..ChangedAccounts::default()
        };
        for (user, at) in self.removed {
            changed.removed_users += usize::from(store.remove_user(&user, at).await?);
            changed.users_without_account.push(user);
        }
        for key in &self.revoked {
            changed.removed_keys += usize::from(store.remove_key(key).await?);
        }
        if !self.missing.users().is_empty() {
            changed.added = store.add_records(&self.missing).await?;
        }
        for KeyRecord { key, hash } in self.added {
            if store.add_key(&key, &hash, MAX_KEYS).await? {
                changed.added.keys += 1;
                if let Some(at) = key.last_used_at {
                    store.record_use(&key.id, at).await?;
                }
            } else {
                let Key { id, user, .. } = key;
                let kind = AccountDifferenceKind::TooManyKeys(id);
                changed.differences.push(AccountDifference { user, kind });
            }
        }
        Ok(changed)
    }
}

fn ids(records: &AccountRecords) -> BTreeSet<&KeyId> {
    records.keys().iter().map(|record| &record.key.id).collect()
}

fn keys_of<'a>(records: &'a AccountRecords, user: &User) -> impl Iterator<Item = &'a KeyRecord> {
    let name = user.name.clone();
    records
        .keys()
        .iter()
        .filter(move |record| record.key.user == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyScope, NewKey};

    fn user(name: &str, created_at: u64, removed_at: Option<u64>) -> User {
        User {
            name: name.parse().unwrap(),
            created_at,
            removed_at,
        }
    }

    fn key(name: &str) -> KeyRecord {
        let (new, hash) = NewKey::generate(name.parse().unwrap(), KeyScope::Read, 1, None).unwrap();
        KeyRecord { key: new.key, hash }
    }

    fn records(users: &[User], keys: &[&KeyRecord], revoked: &[&KeyRecord]) -> AccountRecords {
        let keys = keys.iter().map(|key| (*key).clone()).collect();
        AccountRecords::new(users.to_vec(), keys)
            .unwrap()
            .with_revoked(revoked.iter().map(|key| key.key.id.clone()))
    }

    #[test]
    fn removals_and_new_keys_are_carried_over() {
        let (ada, ben, cal) = (
            user("ada", 1, None),
            user("ben", 1, Some(7)),
            user("cal", 1, None),
        );
        let [kept, revoked, new, of_ben, of_cal] = ["ada", "ada", "ada", "ben", "cal"].map(key);
        let source = records(
            &[ada.clone(), ben, cal],
            &[&kept, &new, &of_cal],
            &[&revoked, &of_ben],
        );
        let target = records(
            &[ada, user("ben", 1, None)],
            &[&kept, &revoked, &of_ben],
            &[],
        );
        let changes = AccountChanges::between(&source, &target);
        assert_eq!(changes.removed, [("ben".parse().unwrap(), 7)]);
        assert_eq!(changes.ended_keys, 1);
        assert_eq!(changes.revoked, [revoked.key.id]);
        assert_eq!(changes.added, [new]);
        assert_eq!(changes.missing.keys(), [of_cal]);
        assert_eq!(changes.differences, []);
    }

    #[test]
    fn key_that_was_revoked_in_the_target_is_not_added() {
        let ada = [user("ada", 1, None)];
        let revoked = key("ada");
        let (source, target) = (
            records(&ada, &[&revoked], &[]),
            records(&ada, &[], &[&revoked]),
        );
        assert_eq!(
            AccountChanges::between(&source, &target),
            AccountChanges::default()
        );
    }

    #[test]
    fn unexplained_difference_is_named_and_kept() {
        let [of_ada, of_ben, of_cal] = ["ada", "ben", "cal"].map(key);
        let own = key("ada");
        let source = records(
            &[
                user("ada", 1, None),
                user("ben", 1, None),
                user("cal", 1, None),
            ],
            &[&of_ada, &of_ben, &of_cal],
            &[],
        );
        let target = records(
            &[
                user("ada", 1, None),
                user("ben", 2, None),
                user("cal", 1, Some(3)),
                user("dan", 3, None),
            ],
            &[&of_ada, &own],
            &[],
        );
        let changes = AccountChanges::between(&source, &target);
        let difference = |name: &str, kind| AccountDifference {
            user: name.parse().unwrap(),
            kind,
        };
        let differences = vec![
            difference("ada", AccountDifferenceKind::KeysOfTarget(vec![own.key.id])),
            difference("ben", AccountDifferenceKind::OtherUser),
            difference("cal", AccountDifferenceKind::RemovedInTarget),
        ];
        assert_eq!(
            changes,
            AccountChanges {
                differences,
                ..AccountChanges::default()
            }
        );
    }
}
