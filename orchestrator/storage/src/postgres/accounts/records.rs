//! All users and keys, for copies.

use accounts::{AccountRecords, AddedAccounts, Key, KeyId, KeyRecord, KeyScope, SecretHash, User};
use protocol::UserId;
use tokio_postgres::Row;

use super::{Database, keys, stored, users};
use crate::postgres::read::BoxError;

/// Each user with each key, or without a key. One statement, and so one snapshot; ids of revoked
/// keys, which are only added, are read after it. Keys of removed users are not valid.
const READ: &str = "
    SELECT name, users.created_at, removed_at, id, user_name, scope, keys.created_at, expires_at, last_used_at, hash
    FROM users LEFT JOIN keys ON name = user_name AND removed_at IS NULL
    ORDER BY name, keys.created_at, number";

/// Column of the first field of a key, and that of its hash.
const KEY_COLUMN: usize = 3;
const HASH_COLUMN: usize = 9;

/// One statement: see the module of all accounts.
const ADD: &str = "
    WITH added AS (
        INSERT INTO users (name, created_at, removed_at, key_count)
        SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[])
        ON CONFLICT (name) DO NOTHING
        RETURNING name
    ), added_keys AS (
        INSERT INTO keys (id, hash, user_name, scope, created_at, expires_at, last_used_at)
        SELECT id, hash, user_name, scope, created_at, expires_at, last_used_at
        FROM unnest($5::text[], $6::bytea[], $7::text[], $8::text[], $9::bigint[], $10::bigint[], $11::bigint[])
            WITH ORDINALITY AS record (id, hash, user_name, scope, created_at, expires_at, last_used_at, position)
        JOIN added ON name = user_name
        ORDER BY position
        ON CONFLICT DO NOTHING
        RETURNING id
    )
    SELECT (SELECT count(*) FROM added), (SELECT count(*) FROM added_keys)";

pub(super) async fn read(database: &Database) -> Result<AccountRecords, BoxError> {
    let rows = database.query(READ, &[]).await?;
    let (mut users, mut keys): (Vec<User>, Vec<KeyRecord>) = Default::default();
    for row in &rows {
        let user = users::parse(row)?;
        if users.last() != Some(&user) {
            users.push(user);
        }
        if row.try_get::<_, Option<&str>>(KEY_COLUMN)?.is_some() {
            keys.push(KeyRecord {
                key: keys::parse(row, KEY_COLUMN)?,
                hash: hash(row)?,
            });
        }
    }
    let revoked = database
        .query("SELECT id FROM revoked_keys", &[])
        .await?
        .iter()
        .map(|row| Ok(row.try_get::<_, String>(0)?.parse()?))
        .collect::<Result<Vec<KeyId>, BoxError>>()?;
    Ok(AccountRecords::new(users, keys)?.with_revoked(revoked))
}

fn hash(row: &Row) -> Result<SecretHash, BoxError> {
    Ok(SecretHash::from_bytes(
        row.try_get::<_, &[u8]>(HASH_COLUMN)?.try_into()?,
    ))
}

/// The parameters of [`ADD`], by column.
#[derive(Default)]
struct Columns<'a> {
    names: Vec<&'a str>,
    created_at: Vec<i64>,
    removed_at: Vec<Option<i64>>,
    key_counts: Vec<i64>,
    ids: Vec<&'a str>,
    hashes: Vec<&'a [u8]>,
    key_users: Vec<&'a str>,
    scopes: Vec<&'static str>,
    keys_created_at: Vec<i64>,
    expires_at: Vec<Option<i64>>,
    last_used_at: Vec<Option<i64>>,
}

impl<'a> Columns<'a> {
    fn new(records: &'a AccountRecords) -> Self {
        let mut columns = Self::default();
        let mut key_counts = std::collections::BTreeMap::<&UserId, i64>::new();
        for KeyRecord { key, hash } in records.keys() {
            let Key {
                id,
                user,
                scope,
                created_at,
                expires_at,
                last_used_at,
            } = key;
            *key_counts.entry(user).or_default() += 1;
            columns.ids.push(id.as_str());
            columns.hashes.push(hash.as_bytes());
            columns.key_users.push(user.as_str());
            columns.scopes.push(KeyScope::as_str(*scope));
            columns.keys_created_at.push(stored(*created_at));
            columns.expires_at.push(expires_at.map(stored));
            columns.last_used_at.push(last_used_at.map(stored));
        }
        for User {
            name,
            created_at,
            removed_at,
        } in records.users()
        {
            columns.names.push(name.as_str());
            columns.created_at.push(stored(*created_at));
            columns.removed_at.push(removed_at.map(stored));
            columns
                .key_counts
                .push(key_counts.get(name).copied().unwrap_or_default());
        }
        columns
    }
}

pub(super) async fn add(
    database: &Database,
    records: &AccountRecords,
) -> Result<AddedAccounts, BoxError> {
    let columns = Columns::new(records);
    // Repeated if the connection breaks: that adds nothing twice, but may count what was added
    // before as existing.
    let rows = database
        .query(
            ADD,
            &[
                &columns.names,
                &columns.created_at,
                &columns.removed_at,
                &columns.key_counts,
                &columns.ids,
                &columns.hashes,
                &columns.key_users,
                &columns.scopes,
                &columns.keys_created_at,
                &columns.expires_at,
                &columns.last_used_at,
            ],
        )
        .await?;
    let Some(row) = rows.first() else {
        return Ok(AddedAccounts::default());
    };
    let count = |column| -> Result<usize, BoxError> {
        Ok(usize::try_from(row.try_get::<_, i64>(column)?)?)
    };
    Ok(AddedAccounts {
        users: count(0)?,
        keys: count(1)?,
    })
}
