//! Removal of a conversation, within the writer's transaction.

use protocol::ConversationId;
use rusqlite::Connection;

/// Removes a conversation, if it exists. Its events first, because they refer to it.
pub(super) fn write(
    connection: &Connection,
    conversation: &ConversationId,
) -> rusqlite::Result<()> {
    const EVENTS: &str =
        "DELETE FROM events WHERE conversation = (SELECT number FROM conversations WHERE id = ?1)";
    for sql in [EVENTS, "DELETE FROM conversations WHERE id = ?1"] {
        connection
            .prepare_cached(sql)?
            .execute([conversation.as_str()])?;
    }
    Ok(())
}
