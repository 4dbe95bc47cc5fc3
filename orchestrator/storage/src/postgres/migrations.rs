//! Schema migrations. Each is an SQL file; the table `glovebox_schema` holds the number of applied
//! ones.
//!
//! Hosts that open a new database concurrently wait for each other at an advisory lock. All missing
//! migrations are applied in one transaction. refinery is not used for the same reason as in
//! SQLite: it uses a transaction per migration and no lock.

use tokio_postgres::{Client, Error, Transaction};

/// Migrations in order. Existing databases have applied the earlier ones, so they never change.
const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/postgres/0001_events.sql"),
    include_str!("../../migrations/postgres/0002_overviews.sql"),
    include_str!("../../migrations/postgres/0003_owners.sql"),
    include_str!("../../migrations/postgres/0004_hosts.sql"),
    include_str!("../../migrations/postgres/0005_accounts.sql"),
    include_str!("../../migrations/postgres/0006_blobs.sql"),
    include_str!("../../migrations/postgres/0007_triggers.sql"),
    include_str!("../../migrations/postgres/0008_revoked_keys.sql"),
];

/// Schema version of this program.
pub(super) const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

/// Key of the advisory lock: "glovebox" in ASCII.
const LOCK_KEY: i64 = i64::from_be_bytes(*b"glovebox");

/// Limits of this transaction. It rewrites tables at worst, or waits until another host has done
/// so.
const LIMITS: &str = "SET LOCAL statement_timeout = '10min'; SET LOCAL lock_timeout = '10min'";

/// Applies missing migrations, unless the version is unknown. Returns the version before.
pub(super) async fn run(client: &mut Client) -> Result<i64, Error> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(LIMITS).await?;
    transaction
        .execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK_KEY])
        .await?;
    let found = version(&transaction).await?;
    let missing = usize::try_from(found)
        .ok()
        .and_then(|done| MIGRATIONS.get(done..))
        .unwrap_or_default();
    if missing.is_empty() {
        return Ok(found);
    }
    for migration in missing {
        transaction.batch_execute(migration).await?;
    }
    transaction
        .execute(
            "UPDATE glovebox_schema SET version = $1",
            &[&SCHEMA_VERSION],
        )
        .await?;
    transaction.commit().await?;
    Ok(found)
}

/// Whether a migration was applied.
pub(super) const IS_MIGRATED: &str = "SELECT to_regclass('glovebox_schema') IS NOT NULL";

/// Returns the number of applied migrations. Creates the table that holds it, in a new database
/// only: a role that may not create tables can use a migrated one.
async fn version(transaction: &Transaction<'_>) -> Result<i64, Error> {
    const CREATE: &str = "CREATE TABLE glovebox_schema (version bigint NOT NULL);
        INSERT INTO glovebox_schema VALUES (0)";
    if !transaction
        .query_one(IS_MIGRATED, &[])
        .await?
        .try_get::<_, bool>(0)?
    {
        transaction.batch_execute(CREATE).await?;
    }
    transaction
        .query_one("SELECT version FROM glovebox_schema", &[])
        .await?
        .try_get(0)
}
