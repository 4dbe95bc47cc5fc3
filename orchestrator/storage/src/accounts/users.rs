//! Users.

use accounts::User;
use protocol::UserId;
use rusqlite::{Connection, OptionalExtension as _, Row, TransactionBehavior, params};

use super::parse_text;

pub(super) fn put(connection: &Connection, name: &UserId, now: u64) -> rusqlite::Result<()> {
    const PUT: &str = "
        INSERT INTO users (name, created_at) VALUES (?1, ?2)
        ON CONFLICT (name) DO UPDATE SET removed_at = NULL";
    connection
        .prepare_cached(PUT)?
        .execute(params![name.as_str(), now])
        .map(drop)
}

pub(super) fn remove(
    connection: &mut Connection,
    name: &UserId,
    now: u64,
) -> rusqlite::Result<bool> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let name = name.as_str();
    let update = "UPDATE users SET removed_at = ?2 WHERE name = ?1 AND removed_at IS NULL";
    let is_removed = transaction.execute(update, params![name, now])? == 1;
    transaction.execute(
        "DELETE FROM sessions WHERE key IN (SELECT id FROM keys WHERE user = ?1)",
        [name],
    )?;
    transaction.execute("DELETE FROM keys WHERE user = ?1", [name])?;
    transaction.commit()?;
    Ok(is_removed)
}

pub(super) fn find(connection: &Connection, name: &UserId) -> rusqlite::Result<Option<User>> {
    const FIND: &str = "SELECT name, created_at, removed_at FROM users WHERE name = ?1";
    connection
        .prepare_cached(FIND)?
        .query_row([name.as_str()], parse)
        .optional()
}

pub(super) fn all(connection: &Connection) -> rusqlite::Result<Vec<User>> {
    const ALL: &str = "SELECT name, created_at, removed_at FROM users ORDER BY name";
    connection
        .prepare_cached(ALL)?
        .query_map([], parse)?
        .collect()
}

fn parse(row: &Row<'_>) -> rusqlite::Result<User> {
    Ok(User {
        name: parse_text(0, row.get(0)?, UserId::try_from)?,
        created_at: row.get(1)?,
        removed_at: row.get(2)?,
    })
}
