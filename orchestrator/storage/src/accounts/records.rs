//! All users and keys, for copies.

use accounts::{
    AccountRecords, AddedAccounts, InvalidRecords, Key, KeyId, KeyRecord, SecretHash, User,
};
use rusqlite::{Connection, TransactionBehavior, params};

use super::{keys, parse_text, users};

/// Why the records cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordsError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Invalid(#[from] InvalidRecords),
}

/// Reads in one transaction, so that each key has its user.
pub(super) fn read(connection: &mut Connection) -> Result<AccountRecords, RecordsError> {
    const HASHES: &str = "SELECT hash FROM keys ORDER BY user, created_at, rowid";
    let snapshot = connection.transaction()?;
    let users = users::all(&snapshot)?;
    let keys = keys::all(&snapshot, None)?;
    let mut statement = snapshot.prepare_cached(HASHES)?;
    let hashes = statement.query_map([], |row| row.get(0).map(SecretHash::from_bytes))?;
    let records = keys
        .into_iter()
        .zip(hashes)
        .map(|(key, hash)| Ok(KeyRecord { key, hash: hash? }));
    let records = records.collect::<rusqlite::Result<_>>()?;
    let mut revoked = snapshot.prepare_cached("SELECT id FROM revoked_keys")?;
    let revoked = revoked
        .query_map([], |row| {
            parse_text(0, row.get(0)?, |id| id.parse::<KeyId>())
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(AccountRecords::new(users, records)?.with_revoked(revoked))
}

pub(super) fn add(
    connection: &mut Connection,
    records: &AccountRecords,
) -> rusqlite::Result<AddedAccounts> {
    const ADD_USER: &str = "INSERT INTO users (name, created_at, removed_at) VALUES (?1, ?2, ?3)";
    const ADD_KEY: &str = "
        INSERT OR IGNORE INTO keys (id, hash, user, scope, created_at, expires_at, last_used_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let missing = records.without(&users::all(&transaction)?);
    let mut added = AddedAccounts::default();
    for User {
        name,
        created_at,
        removed_at,
    } in missing.users()
    {
        added.users += transaction.prepare_cached(ADD_USER)?.execute(params![
            name.as_str(),
            created_at,
            removed_at
        ])?;
    }
    for KeyRecord { key, hash } in missing.keys() {
        let Key {
            id,
            user,
            scope,
            created_at,
            expires_at,
            last_used_at,
        } = key;
        added.keys += transaction.prepare_cached(ADD_KEY)?.execute(params![
            id.as_str(),
            hash.as_bytes(),
            user.as_str(),
            scope.as_str(),
            created_at,
            expires_at,
            last_used_at,
        ])?;
    }
    transaction.commit()?;
    Ok(added)
}
