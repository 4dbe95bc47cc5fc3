//! Schema migrations. Each is an SQL file; `user_version` is the number of applied ones.
//!
//! refinery was tried: it reads the applied migrations and applies the others in separate
//! transactions, so that one of two processes fails if both open a new file concurrently. Here both
//! happen in one write transaction.

use std::cmp::Ordering;

use rusqlite::{Connection, TransactionBehavior};

use super::open::{Location, OpenError};
use crate::schema_migration::SchemaMigration;

/// Migrations of the event store in order. Existing files have applied the earlier ones, so they
/// never change.
pub(super) const EVENTS: &[&str] = &[
    include_str!("../../migrations/0001_events.sql"),
    include_str!("../../migrations/0002_overviews.sql"),
    include_str!("../../migrations/0003_owners.sql"),
    include_str!("../../migrations/0004_blobs.sql"),
    include_str!("../../migrations/0005_triggers.sql"),
];

/// Opens a connection, after it has created the file and applied missing migrations.
pub(crate) fn open(
    location: &Location,
    migrations: &[&str],
) -> Result<(Connection, SchemaMigration), OpenError> {
    location.create()?;
    let mut connection = location.connect()?;
    location.check_writable(&connection)?;
    let migration = apply(&mut connection, location, migrations)?;
    Ok((connection, migration))
}

/// Like [`open`], but a file that cannot be written is only read. Returns its location too, if that
/// is so.
pub(crate) fn open_to_read(
    location: &Location,
    migrations: &[&str],
) -> Result<(Connection, Option<Location>), OpenError> {
    match open(location, migrations) {
        Err(error) if error.may_be_read_only() && location.file().exists() => {
            let location = location.read_only()?;
            let connection = location.connect()?;
            check(&connection, &location, migrations)?;
            Ok((connection, Some(location)))
        }
        opened => opened.map(|(connection, _)| (connection, None)),
    }
}

/// Applies those of a file's migrations that are missing.
fn apply(
    connection: &mut Connection,
    location: &Location,
    migrations: &[&str],
) -> Result<SchemaMigration, OpenError> {
    let known = migrations.len() as i64;
    let file = || location.file().to_owned();
    let found = migrate(connection, migrations).map_err(|source| OpenError::Migrate {
        file: file(),
        version: known,
        source,
    })?;
    if found > known {
        return Err(OpenError::TooNew {
            file: file(),
            found,
            known,
        });
    }
    Ok(SchemaMigration {
        from: found,
        to: known,
    })
}

/// Checks the schema version of a file that cannot be written.
fn check(
    connection: &Connection,
    location: &Location,
    migrations: &[&str],
) -> Result<(), OpenError> {
    let known = migrations.len() as i64;
    let file = || location.file().to_owned();
    let found = version(connection).map_err(|source| OpenError::open(file(), source))?;
    match found.cmp(&known) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(OpenError::TooNew {
            file: file(),
            found,
            known,
        }),
        Ordering::Less => Err(OpenError::TooOld {
            file: file(),
            found,
            known,
        }),
    }
}

/// Applies missing migrations, unless the version is unknown. Returns the version before.
fn migrate(connection: &mut Connection, migrations: &[&str]) -> rusqlite::Result<i64> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = version(&transaction)?;
    let missing = usize::try_from(found)
        .ok()
        .and_then(|done| migrations.get(done..))
        .unwrap_or_default();
    if missing.is_empty() {
        return Ok(found);
    }
    for migration in missing {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "user_version", migrations.len() as i64)?;
    transaction.commit()?;
    Ok(found)
}

/// Writes the version again.
pub(super) fn touch(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "user_version", version(connection)?)
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}
