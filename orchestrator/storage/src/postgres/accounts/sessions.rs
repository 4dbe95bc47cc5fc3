//! Sessions.

use accounts::{SecretHash, Session};
use tokio_postgres::Row;

use super::{Database, stored};
use crate::postgres::read::BoxError;

/// One less than the maximum of the older sessions is kept, because they do not include the new
/// one.
const ADD: &str = "
    WITH ended AS (
        DELETE FROM sessions WHERE expires_at <= $3 OR hash IN (
            SELECT hash FROM sessions WHERE key = $2 ORDER BY created_at DESC, number DESC OFFSET $5
        )
    )
    INSERT INTO sessions (hash, key, created_at, expires_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (hash) DO NOTHING";

const FIND: &str = "SELECT hash, key, created_at, expires_at FROM sessions WHERE hash = $1";

const REMOVE: &str = "DELETE FROM sessions WHERE hash = $1 RETURNING key";

pub(super) async fn add(
    database: &Database,
    session: &Session,
    max: usize,
) -> Result<(), BoxError> {
    let Session {
        hash,
        key,
        created_at,
        expires_at,
    } = session;
    let older = i64::try_from(max.saturating_sub(1)).unwrap_or(i64::MAX);
    let hash = hash.as_bytes().as_slice();
    database
        .query(
            ADD,
            &[
                &hash,
                key,
                &stored(*created_at),
                &stored(*expires_at),
                &older,
            ],
        )
        .await?;
    Ok(())
}

pub(super) async fn find(
    database: &Database,
    hash: &SecretHash,
) -> Result<Option<Session>, BoxError> {
    database
        .query(FIND, &[&hash.as_bytes().as_slice()])
        .await?
        .first()
        .map(parse)
        .transpose()
}

pub(super) async fn remove(database: &Database, hash: &SecretHash) -> Result<bool, BoxError> {
    Ok(!database
        .query(REMOVE, &[&hash.as_bytes().as_slice()])
        .await?
        .is_empty())
}

fn parse(row: &Row) -> Result<Session, BoxError> {
    Ok(Session {
        hash: SecretHash::from_bytes(row.try_get::<_, &[u8]>(0)?.try_into()?),
        key: row.try_get(1)?,
        created_at: u64::try_from(row.try_get::<_, i64>(2)?)?,
        expires_at: u64::try_from(row.try_get::<_, i64>(3)?)?,
    })
}
