//! Keys.

use accounts::{Key, KeyId, KeyScope, SecretHash};
use protocol::UserId;
use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, TransactionBehavior, params};

use super::parse_text;

/// The scope of a row is none of this program.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a scope")]
struct UnknownScope(String);

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, user, scope, created_at, expires_at, last_used_at FROM keys ",
            $rest
        )
    };
}

/// Counts the keys in the same transaction, so that concurrent additions do not exceed the maximum.
pub(super) fn add(
    connection: &mut Connection,
    key: &Key,
    hash: &SecretHash,
    max: usize,
) -> rusqlite::Result<bool> {
    const INSERT: &str = "
        INSERT INTO keys (id, hash, user, scope, created_at, expires_at)
        SELECT ?1, ?2, name, ?4, ?5, ?6 FROM users
        WHERE name = ?3 AND removed_at IS NULL AND (SELECT count(*) FROM keys WHERE user = ?3) < ?7";
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let count = transaction.execute(
        INSERT,
        params![
            key.id.as_str(),
            hash.as_bytes(),
            key.user.as_str(),
            key.scope.as_str(),
            key.created_at,
            key.expires_at,
            i64::try_from(max).unwrap_or(i64::MAX),
        ],
    )?;
    transaction.commit()?;
    Ok(count == 1)
}

pub(super) fn remove(connection: &mut Connection, id: &KeyId) -> rusqlite::Result<bool> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute("DELETE FROM sessions WHERE key = ?1", [id.as_str()])?;
    let count = transaction.execute("DELETE FROM keys WHERE id = ?1", [id.as_str()])?;
    transaction.commit()?;
    Ok(count == 1)
}

pub(super) fn all(connection: &Connection, user: Option<&UserId>) -> rusqlite::Result<Vec<Key>> {
    const ALL: &str = select!("WHERE ?1 IS NULL OR user = ?1 ORDER BY user, created_at, rowid");
    connection
        .prepare_cached(ALL)?
        .query_map([user.map(UserId::as_str)], parse)?
        .collect()
}

pub(super) fn with_id(connection: &Connection, id: &KeyId) -> rusqlite::Result<Option<Key>> {
    find(connection, select!("WHERE id = ?1"), &id.as_str())
}

pub(super) fn with_hash(
    connection: &Connection,
    hash: &SecretHash,
) -> rusqlite::Result<Option<Key>> {
    find(connection, select!("WHERE hash = ?1"), hash.as_bytes())
}

fn find(connection: &Connection, select: &str, value: &dyn ToSql) -> rusqlite::Result<Option<Key>> {
    connection
        .prepare_cached(select)?
        .query_row([value], parse)
        .optional()
}

pub(super) fn record_use(connection: &Connection, id: &KeyId, now: u64) -> rusqlite::Result<()> {
    const UPDATE: &str = "UPDATE keys SET last_used_at = ?2 WHERE id = ?1";
    connection
        .prepare_cached(UPDATE)?
        .execute(params![id.as_str(), now])
        .map(drop)
}

fn parse(row: &Row<'_>) -> rusqlite::Result<Key> {
    let scope = |name: String| KeyScope::from_name(&name).ok_or(UnknownScope(name));
    Ok(Key {
        id: parse_text(0, row.get(0)?, |id| id.parse::<KeyId>())?,
        user: parse_text(1, row.get(1)?, UserId::try_from)?,
        scope: parse_text(2, row.get(2)?, scope)?,
        created_at: row.get(3)?,
        expires_at: row.get(4)?,
        last_used_at: row.get(5)?,
    })
}
