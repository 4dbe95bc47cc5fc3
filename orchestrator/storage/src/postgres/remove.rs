//! Removal of a conversation, in one statement.

use engine::events::StoreError;
use protocol::ConversationId;
use uuid::Uuid;

use super::database::{Database, DatabaseError};

/// Deletes the conversation with its events, unless the lease forbids it, as for an append. Returns
/// whether it is allowed.
const REMOVE: &str = "
WITH lease AS MATERIALIZED (
    SELECT host, generation, expires_at FROM leases WHERE conversation = $1 FOR SHARE
), allowed AS MATERIALIZED (
    SELECT 1 FROM (SELECT $3::bigint AS required) AS batch LEFT JOIN lease ON true
    WHERE CASE WHEN required IS NULL
        THEN lease.host IS NULL OR lease.host = $2 OR lease.expires_at <= clock_timestamp()
        ELSE lease.host = $2 AND lease.generation = required AND lease.expires_at > clock_timestamp()
        END
), removed AS (
    DELETE FROM conversations WHERE id = $1 AND EXISTS (SELECT FROM allowed)
)
SELECT EXISTS (SELECT FROM allowed)";

/// Removes a conversation, if it exists. `generation` is that of this host's lease.
pub(super) async fn remove(
    database: &Database,
    host: Uuid,
    conversation: &ConversationId,
    generation: Option<i64>,
) -> Result<Result<(), StoreError>, DatabaseError> {
    let rows = database
        .query(REMOVE, &[&conversation.as_str(), &host, &generation])
        .await?;
    let is_allowed = rows.first().map_or(Ok(false), |row| row.try_get(0))?;
    Ok(if is_allowed {
        Ok(())
    } else {
        Err(StoreError::LeaseLost {
            conversation: conversation.clone(),
        })
    })
}
