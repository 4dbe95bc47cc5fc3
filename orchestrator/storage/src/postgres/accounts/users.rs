//! Users.

use accounts::User;
use protocol::UserId;
use tokio_postgres::Row;

use super::{Database, count, stored};
use crate::postgres::read::BoxError;

/// Removes keys that were added while their user was being removed.
const PUT: &str = "
    WITH revoked AS (
        DELETE FROM keys USING users WHERE name = $1 AND user_name = $1 AND removed_at IS NOT NULL
    )
    INSERT INTO users (name, created_at) VALUES ($1, $2)
    ON CONFLICT (name) DO UPDATE SET
        removed_at = NULL,
        key_count = CASE WHEN users.removed_at IS NULL THEN users.key_count ELSE 0 END";

/// A key that is added at the same time may stay. It is not found while its user is removed.
const REMOVE: &str = "
    WITH removed AS (
        UPDATE users SET removed_at = $2, key_count = 0 WHERE name = $1 AND removed_at IS NULL RETURNING name
    ), ended AS (
        DELETE FROM sessions WHERE key IN (SELECT id FROM keys WHERE user_name = $1)
    ), revoked AS (
        DELETE FROM keys WHERE user_name = $1
    )
    SELECT count(*) FROM removed";

const FIND: &str = "SELECT name, created_at, removed_at FROM users WHERE name = $1";

const ALL: &str = "SELECT name, created_at, removed_at FROM users ORDER BY name";

pub(super) async fn put(database: &Database, name: &UserId, now: u64) -> Result<(), BoxError> {
    database.query(PUT, &[&name.as_str(), &stored(now)]).await?;
    Ok(())
}

pub(super) async fn remove(database: &Database, name: &UserId, now: u64) -> Result<bool, BoxError> {
    let rows = database
        .query_once(REMOVE, &[&name.as_str(), &stored(now)])
        .await?;
    Ok(count(&rows)? == 1)
}

pub(super) async fn find(database: &Database, name: &UserId) -> Result<Option<User>, BoxError> {
    database
        .query(FIND, &[&name.as_str()])
        .await?
        .first()
        .map(parse)
        .transpose()
}

pub(super) async fn all(database: &Database) -> Result<Vec<User>, BoxError> {
    database.query(ALL, &[]).await?.iter().map(parse).collect()
}

pub(super) fn parse(row: &Row) -> Result<User, BoxError> {
    Ok(User {
        name: UserId::try_from(row.try_get::<_, String>(0)?)?,
        created_at: u64::try_from(row.try_get::<_, i64>(1)?)?,
        removed_at: row
            .try_get::<_, Option<i64>>(2)?
            .map(u64::try_from)
            .transpose()?,
    })
}
