//! Keys.

use accounts::{Key, KeyId, KeyScope, SecretHash};
use protocol::UserId;
use tokio_postgres::Row;

use super::{Database, count, stored};
use crate::postgres::database::Parameters;
use crate::postgres::read::BoxError;

/// Keys of removed users are not found.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, user_name, scope, keys.created_at, expires_at, last_used_at
             FROM keys JOIN users ON name = user_name WHERE removed_at IS NULL ",
            $rest
        )
    };
}

/// Waits for a concurrent addition or removal of the user, and then sees its result.
const ADD: &str = "
    WITH owner AS (
        UPDATE users SET key_count = key_count + 1 WHERE name = $3 AND removed_at IS NULL AND key_count < $7
        RETURNING name
    ), added AS (
        INSERT INTO keys (id, hash, user_name, scope, created_at, expires_at)
        SELECT $1, $2, name, $4, $5, $6 FROM owner
        RETURNING id
    )
    SELECT count(*) FROM added";

const REMOVE: &str = "
    WITH ended AS (
        DELETE FROM sessions WHERE key = $1
    ), removed AS (
        DELETE FROM keys WHERE id = $1 RETURNING user_name
    ), counted AS (
        UPDATE users SET key_count = greatest(key_count - 1, 0) FROM removed WHERE name = user_name
    )
    SELECT count(*) FROM removed";

const RECORD_USE: &str = "UPDATE keys SET last_used_at = $2 WHERE id = $1";

pub(super) async fn add(
    database: &Database,
    key: &Key,
    hash: &SecretHash,
    max: usize,
) -> Result<bool, BoxError> {
    let Key {
        id,
        user,
        scope,
        created_at,
        expires_at,
        last_used_at: _,
    } = key;
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    let parameters: Parameters<'_> = &[
        &id.as_str(),
        &hash.as_bytes().as_slice(),
        &user.as_str(),
        &scope.as_str(),
        &stored(*created_at),
        &expires_at.map(stored),
        &max,
    ];
    Ok(count(&database.query_once(ADD, parameters).await?)? == 1)
}

pub(super) async fn remove(database: &Database, id: &KeyId) -> Result<bool, BoxError> {
    Ok(count(&database.query_once(REMOVE, &[&id.as_str()]).await?)? == 1)
}

pub(super) async fn all(database: &Database, user: Option<&UserId>) -> Result<Vec<Key>, BoxError> {
    const ALL: &str = select!(
        "AND ($1::text IS NULL OR user_name = $1) ORDER BY user_name, keys.created_at, number"
    );
    database
        .query(ALL, &[&user.map(UserId::as_str)])
        .await?
        .iter()
        .map(|row| parse(row, 0))
        .collect()
}

pub(super) async fn with_id(database: &Database, id: &KeyId) -> Result<Option<Key>, BoxError> {
    find(database, select!("AND id = $1"), &[&id.as_str()]).await
}

pub(super) async fn with_hash(
    database: &Database,
    hash: &SecretHash,
) -> Result<Option<Key>, BoxError> {
    find(
        database,
        select!("AND hash = $1"),
        &[&hash.as_bytes().as_slice()],
    )
    .await
}

async fn find(
    database: &Database,
    select: &'static str,
    parameters: Parameters<'_>,
) -> Result<Option<Key>, BoxError> {
    database
        .query(select, parameters)
        .await?
        .first()
        .map(|row| parse(row, 0))
        .transpose()
}

pub(super) async fn record_use(database: &Database, id: &KeyId, now: u64) -> Result<(), BoxError> {
    database
        .query(RECORD_USE, &[&id.as_str(), &stored(now)])
        .await?;
    Ok(())
}

/// Parses the columns of a key from `first` on.
pub(super) fn parse(row: &Row, first: usize) -> Result<Key, BoxError> {
    let scope: String = row.try_get(first + 2)?;
    let optional = |column| -> Result<Option<u64>, BoxError> {
        Ok(row
            .try_get::<_, Option<i64>>(column)?
            .map(u64::try_from)
            .transpose()?)
    };
    Ok(Key {
        id: row.try_get::<_, String>(first)?.parse()?,
        user: UserId::try_from(row.try_get::<_, String>(first + 1)?)?,
        scope: KeyScope::from_name(&scope).ok_or_else(|| format!("{scope:?} is not a scope"))?,
        created_at: u64::try_from(row.try_get::<_, i64>(first + 3)?)?,
        expires_at: optional(first + 4)?,
        last_used_at: optional(first + 5)?,
    })
}
