//! Sessions.

use accounts::{SecretHash, Session};
use rusqlite::{Connection, OptionalExtension as _, Row, TransactionBehavior, params};

pub(super) fn add(
    connection: &mut Connection,
    session: &Session,
    max: usize,
) -> rusqlite::Result<()> {
    const REMOVE_OLDEST: &str = "
        DELETE FROM sessions WHERE hash IN (
            SELECT hash FROM sessions WHERE key = ?1 ORDER BY created_at DESC, rowid DESC LIMIT -1 OFFSET ?2
        )";
    let Session {
        hash,
        key,
        created_at,
        expires_at,
    } = session;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let insert = "INSERT INTO sessions (hash, key, created_at, expires_at) VALUES (?1, ?2, ?3, ?4)";
    transaction.execute(
        insert,
        params![hash.as_bytes(), key, created_at, expires_at],
    )?;
    transaction.execute("DELETE FROM sessions WHERE expires_at <= ?1", [created_at])?;
    transaction.execute(
        REMOVE_OLDEST,
        params![key, i64::try_from(max).unwrap_or(i64::MAX)],
    )?;
    transaction.commit()
}

pub(super) fn find(
    connection: &Connection,
    hash: &SecretHash,
) -> rusqlite::Result<Option<Session>> {
    const FIND: &str = "SELECT hash, key, created_at, expires_at FROM sessions WHERE hash = ?1";
    connection
        .prepare_cached(FIND)?
        .query_row([hash.as_bytes()], parse)
        .optional()
}

pub(super) fn remove(connection: &Connection, hash: &SecretHash) -> rusqlite::Result<bool> {
    Ok(connection.execute("DELETE FROM sessions WHERE hash = ?1", [hash.as_bytes()])? == 1)
}

fn parse(row: &Row<'_>) -> rusqlite::Result<Session> {
    Ok(Session {
        hash: SecretHash::from_bytes(row.get(0)?),
        key: row.get(1)?,
        created_at: row.get(2)?,
        expires_at: row.get(3)?,
    })
}
