//! One removal: a conversation with its log, inside the transaction that the writer has opened.

use protocol::ConversationId;
use rusqlite::Connection;

/// One that does not exist is no error. The events go first: they refer to the conversation.
pub(super) fn write(connection: &Connection, conversation: &ConversationId) -> rusqlite::Result<()> {
    const EVENTS: &str =
        "DELETE FROM events WHERE conversation = (SELECT number FROM conversations WHERE id = ?1)";
    for sql in [EVENTS, "DELETE FROM conversations WHERE id = ?1"] {
        connection.prepare_cached(sql)?.execute([conversation.as_str()])?;
    }
    Ok(())
}
