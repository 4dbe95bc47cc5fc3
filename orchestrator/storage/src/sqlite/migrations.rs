//! Schema migrations. Each is an SQL file; `user_version` is the number of applied ones.
//!
//! refinery was tried: it reads the applied migrations and applies the others in separate transactions, so that one of two
//! processes fails if both open a new file concurrently. Here both happen in one write transaction.

use rusqlite::{Connection, TransactionBehavior};

use super::open::{Location, OpenError};
use crate::schema_migration::SchemaMigration;

/// Migrations in order. Existing files have applied the earlier ones, so they never change.
const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/0001_events.sql"),
    include_str!("../../migrations/0002_overviews.sql"),
    include_str!("../../migrations/0003_owners.sql"),
    include_str!("../../migrations/0004_blobs.sql"),
    include_str!("../../migrations/0005_triggers.sql"),
];

/// Schema version of this program.
const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

pub(super) fn run(connection: &mut Connection, location: &Location) -> Result<SchemaMigration, OpenError> {
    apply(connection, location, MIGRATIONS)
}

/// Applies those of a file's migrations that are missing.
pub(crate) fn apply(
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
        return Err(OpenError::TooNew { file: file(), found, known });
    }
    Ok(SchemaMigration { from: found, to: known })
}

/// Checks the schema version of a file that cannot be written.
pub(super) fn check(connection: &Connection, location: &Location) -> Result<(), OpenError> {
    let file = || location.file().to_owned();
    let found = version(connection).map_err(|source| OpenError::Open { file: file(), source })?;
    match found {
        SCHEMA_VERSION => Ok(()),
        found if found > SCHEMA_VERSION => {
            Err(OpenError::TooNew { file: file(), found, known: SCHEMA_VERSION })
        }
        found => Err(OpenError::TooOld { file: file(), found, known: SCHEMA_VERSION }),
    }
}

/// Applies missing migrations, unless the version is unknown. Returns the version before.
fn migrate(connection: &mut Connection, migrations: &[&str]) -> rusqlite::Result<i64> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = version(&transaction)?;
    let missing = usize::try_from(found).ok().and_then(|done| migrations.get(done..)).unwrap_or_default();
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
