//! Brings the tables of a file to this version's shape: one SQL file a step, `user_version` says how many have run.
//!
//! Our own and not refinery: that reads what has run and runs the rest in transactions of their own, so that of two
//! processes which open a new file at once, one fails. Here one write transaction decides and does.

use rusqlite::{Connection, TransactionBehavior};

use super::open::{Location, OpenError};

/// Only ever appended to: files out there have run the earlier ones.
const STEPS: &[&str] = &[include_str!("../../migrations/0001_events.sql")];

const KNOWN: i64 = STEPS.len() as i64;

pub(super) fn run(connection: &mut Connection, location: &Location) -> Result<(), OpenError> {
    let found = migrate(connection).map_err(|source| OpenError::Migrate {
        file: location.file().to_owned(),
        version: KNOWN,
        source,
    })?;
    if found > KNOWN {
        return Err(OpenError::TooNew { file: location.file().to_owned(), found, known: KNOWN });
    }
    Ok(())
}

/// Fails if the tables of a file that cannot be written have another shape.
pub(super) fn check(connection: &Connection, location: &Location) -> Result<(), OpenError> {
    let file = || location.file().to_owned();
    let found = version(connection).map_err(|source| OpenError::Open { file: file(), source })?;
    match found {
        KNOWN => Ok(()),
        found if found > KNOWN => Err(OpenError::TooNew { file: file(), found, known: KNOWN }),
        found => Err(OpenError::TooOld { file: file(), found, known: KNOWN }),
    }
}

/// Returns the version that it found; does nothing when that is one that we do not know.
fn migrate(connection: &mut Connection) -> rusqlite::Result<i64> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = version(&transaction)?;
    let missing = usize::try_from(found).ok().and_then(|done| STEPS.get(done..)).unwrap_or_default();
    if missing.is_empty() {
        return Ok(found);
    }
    for step in missing {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", KNOWN)?;
    transaction.commit()?;
    Ok(found)
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}
