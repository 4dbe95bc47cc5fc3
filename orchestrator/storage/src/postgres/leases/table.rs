//! The statements on the table `leases`. All times are those of the database's clock.

use std::collections::BTreeSet;
use std::time::Duration;

use protocol::ConversationId;
use tokio_postgres::Row;
use uuid::Uuid;

use super::LeaseHost;
use super::held::{Generation, LeaseKey};
use crate::postgres::database::{Database, DatabaseError};

/// Takes a lease that is free, has expired, or was acquired by this host without anyone holding it.
/// No row otherwise. The generation is drawn while the row is locked, so that it increases in the
/// order of acquisitions.
const ACQUIRE: &str = "
    INSERT INTO leases AS held (conversation, host, generation, expires_at, address)
    VALUES ($1, $2, nextval('lease_generations'), clock_timestamp() + make_interval(secs => $3), $4)
    ON CONFLICT (conversation) DO UPDATE
        SET host = excluded.host,
            address = excluded.address,
            generation = nextval('lease_generations'),
            expires_at = clock_timestamp() + make_interval(secs => $3)
        WHERE held.expires_at <= clock_timestamp() OR held.host = excluded.host
    RETURNING generation, xmax <> 0";

/// Extends the leases that have neither expired nor been taken over. Locks them in the order in
/// which appends do.
const RENEW: &str = "
    WITH mine AS MATERIALIZED (
        SELECT leases.conversation, leases.generation
        FROM leases JOIN unnest($2::text[], $3::bigint[]) AS held (conversation, generation)
            USING (conversation, generation)
        WHERE leases.host = $1 AND leases.expires_at > clock_timestamp()
        ORDER BY leases.conversation
        FOR NO KEY UPDATE OF leases
    )
    UPDATE leases SET expires_at = clock_timestamp() + make_interval(secs => $4)
    FROM mine WHERE leases.conversation = mine.conversation
    RETURNING leases.conversation, leases.generation";

/// Deletes the leases that have not been taken over. Locks them in the same order.
const RELEASE: &str = "
    WITH mine AS MATERIALIZED (
        SELECT leases.conversation
        FROM leases JOIN unnest($2::text[], $3::bigint[]) AS held (conversation, generation)
            USING (conversation, generation)
        WHERE leases.host = $1
        ORDER BY leases.conversation
        FOR UPDATE OF leases
    )
    DELETE FROM leases USING mine WHERE leases.conversation = mine.conversation";

const OTHER_HOLDER: &str = "
    SELECT address FROM leases WHERE conversation = $1 AND host <> $2 AND expires_at > clock_timestamp()";

const HELD: &str = "SELECT conversation FROM leases WHERE expires_at > clock_timestamp()";

const EXPIRED: &str = "SELECT conversation FROM leases WHERE expires_at <= clock_timestamp()";

/// Acquires a lease. Returns whether it takes the place of one that was not released. `None` if
/// another host holds it.
pub(super) async fn acquire(
    database: &Database,
    host: &LeaseHost,
    conversation: &ConversationId,
    duration: Duration,
) -> Result<Option<(Generation, bool)>, DatabaseError> {
    let LeaseHost { id, address } = host;
    let rows = database
        .query(
            ACQUIRE,
            &[&conversation.as_str(), id, &duration.as_secs_f64(), address],
        )
        .await?;
    Ok(rows
        .first()
        .map(|row| Ok::<_, tokio_postgres::Error>((row.try_get(0)?, row.try_get(1)?)))
        .transpose()?)
}

/// Renews leases. Returns those that were renewed; the others are lost.
pub(super) async fn renew(
    database: &Database,
    host: Uuid,
    leases: &[LeaseKey],
    duration: Duration,
) -> Result<BTreeSet<LeaseKey>, DatabaseError> {
    let (conversations, generations) = columns(leases);
    let rows = database
        .query(
            RENEW,
            &[&host, &conversations, &generations, &duration.as_secs_f64()],
        )
        .await?;
    let mut renewed = BTreeSet::new();
    for row in &rows {
        let generation = row.try_get(1)?;
        renewed.extend(conversation(row)?.map(|conversation| (conversation, generation)));
    }
    Ok(renewed)
}

/// Releases leases, unless they were taken over.
pub(super) async fn release(
    database: &Database,
    host: Uuid,
    leases: &[LeaseKey],
) -> Result<(), DatabaseError> {
    let (conversations, generations) = columns(leases);
    database
        .query(RELEASE, &[&host, &conversations, &generations])
        .await?;
    Ok(())
}

/// Returns the address of another host that holds a lease. `None` if none does, or it has no
/// address.
pub(super) async fn other_holder(
    database: &Database,
    host: Uuid,
    conversation: &ConversationId,
) -> Result<Option<String>, DatabaseError> {
    let rows = database
        .query(OTHER_HOLDER, &[&conversation.as_str(), &host])
        .await?;
    Ok(rows
        .first()
        .map(|row| row.try_get(0))
        .transpose()?
        .flatten())
}

/// Returns the leased conversations of all hosts.
pub(super) async fn held(database: &Database) -> Result<BTreeSet<ConversationId>, DatabaseError> {
    list(database, HELD).await
}

/// Returns the conversations whose lease has expired without a release.
pub(super) async fn expired(
    database: &Database,
) -> Result<BTreeSet<ConversationId>, DatabaseError> {
    list(database, EXPIRED).await
}

async fn list(
    database: &Database,
    sql: &'static str,
) -> Result<BTreeSet<ConversationId>, DatabaseError> {
    let rows = database.query(sql, &[]).await?;
    rows.iter()
        .filter_map(|row| conversation(row).transpose())
        .collect()
}

/// Returns the conversation of a row. `None` if another program wrote one that is no id.
fn conversation(row: &Row) -> Result<Option<ConversationId>, DatabaseError> {
    let text: &str = row.try_get(0)?;
    let parsed = text
        .parse()
        .inspect_err(|error| tracing::error!(text, %error, "a lease has an invalid id"));
    Ok(parsed.ok())
}

fn columns(leases: &[LeaseKey]) -> (Vec<&str>, Vec<Generation>) {
    leases
        .iter()
        .map(|(conversation, generation)| (conversation.as_str(), *generation))
        .unzip()
}
