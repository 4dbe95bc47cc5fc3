//! Reads conversations with their overviews.
//!
//! Scans the entries of all conversations, which takes milliseconds for ten thousand. An index by
//! time would cost every append more than it saves here. A full-text index cannot find parts of
//! words, as the search does; trigrams cannot find texts of less than three characters.

use engine::events::{
    ConversationPage, ConversationQuery, ListedConversation, Overview, StoreError,
};
use protocol::record::ConversationTrigger;
use protocol::{AgentState, ConversationId, UserId};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::failed;
use super::read::{READ_CONVERSATIONS, damaged_entry, parse_column, parse_summary};
use crate::variant_name::from_name;

/// The columns of a conversation, the first four as in the list without overviews.
macro_rules! columns {
    () => {
        "conversations.id, conversations.events, conversations.created_at, conversations.last_updated_at,
         conversations.overview_events, conversations.agent_state, conversations.cost,
         given_title, first_line, model, folder, repository, branch, conversations.owner,
         conversations.number, git_provider, conversation_trigger"
    };
}

const FIND: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM conversations LEFT JOIN overviews ON conversation = number WHERE id = ?1"
);

/// Selects the numbers first, so that only the rows of the page are read completely. Texts are read
/// only if they are filtered. A position is a time and an id, or the number of a conversation.
const LIST: &str = concat!(
    "WITH page AS MATERIALIZED (
        SELECT number FROM conversations
        WHERE (?1 IS NULL OR (last_updated_at, id) < (?1, ?2))
            AND (?3 IS NULL OR (last_updated_at, id) < (
                SELECT last_updated_at, id FROM conversations AS last WHERE last.number = ?3
            ))
            AND (?4 IS NULL OR coalesce(agent_state, ?5) IN (SELECT value FROM json_each(?4)))
            AND (?10 IS NULL OR owner = ?10)
            AND (?11 IS NULL OR ?11 = coalesce(
                (SELECT conversation_trigger FROM overviews WHERE conversation = number), ?12
            ))
            AND (coalesce(?6, ?7, ?8) IS NULL OR EXISTS (
                SELECT 1 FROM overviews WHERE conversation = number
                    AND (?6 IS NULL OR instr(search_title, ?6) OR instr(search_message, ?6)
                        OR instr(search_settings, ?6))
                    AND (?7 IS NULL OR folder = ?7)
                    AND (?8 IS NULL OR instr(repository, ?8))
            ))
        ORDER BY last_updated_at DESC, id DESC
        LIMIT ?9
    )
    SELECT ",
    columns!(),
    " FROM page JOIN conversations USING (number) LEFT JOIN overviews ON conversation = number
    ORDER BY last_updated_at DESC, id DESC"
);

/// A conversation, or the error of its entry.
type Entry = Result<ListedConversation, StoreError>;

/// Lists the conversations that a query selects. Reads on while damaged entries take the place of
/// others.
pub(super) fn conversations(
    connection: &mut Connection,
    query: &ConversationQuery,
) -> Result<ConversationPage, StoreError> {
    let snapshot = connection
        .transaction()
        .map_err(|error| failed(READ_CONVERSATIONS, error))?;
    let mut page = ConversationPage::default();
    let mut last = None;
    while page.conversations.len() < query.limit {
        let entries = read_entries(&snapshot, query, last);
        let entries = entries.map_err(|error| failed(READ_CONVERSATIONS, error))?;
        let is_end = entries.len() < query.limit;
        last = entries.last().map(|(number, _)| *number);
        for (_, entry) in entries {
            match entry {
                Ok(_) if page.conversations.len() == query.limit => break,
                Ok(listed) => page.conversations.push(listed),
                Err(error) => page.damaged.push(error),
            }
        }
        if is_end {
            break;
        }
    }
    Ok(page)
}

/// Reads as many rows as the limit, after the row with the number `last`.
fn read_entries(
    snapshot: &Connection,
    query: &ConversationQuery,
    last: Option<i64>,
) -> rusqlite::Result<Vec<(i64, Entry)>> {
    let ConversationQuery {
        text,
        agent_states,
        folder,
        repository,
        trigger,
        owner,
        before,
        limit,
    } = query;
    let agent_states =
        (!agent_states.is_empty()).then(|| serde_json::json!(agent_states).to_string());
    let mut statement = snapshot.prepare_cached(LIST)?;
    let mut rows = statement.query(params![
        before
            .as_ref()
            .map(|position| position.last_updated_at.as_str()),
        before.as_ref().map(|position| position.id.as_str()),
        last,
        agent_states,
        AgentState::default().as_str(),
        text,
        folder,
        repository,
        i64::try_from(*limit).unwrap_or(i64::MAX),
        owner.as_ref().map(UserId::as_str),
        trigger.map(ConversationTrigger::as_str),
        ConversationTrigger::default().as_str(),
    ])?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        entries.push((row.get(14)?, entry(row)?));
    }
    Ok(entries)
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    parse(row).map_or_else(
        |source| damaged_entry(row, source).map(Err),
        |listed| Ok(Ok(listed)),
    )
}

/// Finds one conversation. A damaged row is an error.
pub(super) fn find(
    connection: &mut Connection,
    conversation: &ConversationId,
) -> Result<Option<ListedConversation>, StoreError> {
    let read = |connection: &Connection| {
        connection
            .prepare_cached(FIND)?
            .query_row([conversation.as_str()], entry)
            .optional()
    };
    read(connection)
        .map_err(|error| failed(READ_CONVERSATIONS, error))?
        .transpose()
}

fn parse(row: &Row<'_>) -> rusqlite::Result<ListedConversation> {
    let agent_state: Option<String> = row.get(5)?;
    let owner = row
        .get::<_, Option<String>>(13)?
        .map(|_| parse_column(row, 13, UserId::try_from));
    let overview = Overview {
        agent_state: agent_state.as_deref().map(AgentState::from_name),
        cost: row.get(6)?,
        given_title: row.get(7)?,
        first_line: row.get(8)?,
        model: row.get(9)?,
        folder: row.get(10)?,
        repository: row.get(11)?,
        branch: row.get(12)?,
        git_provider: row.get::<_, Option<String>>(15)?.and_then(from_name),
        trigger: row.get::<_, Option<String>>(16)?.and_then(from_name),
        owner: owner.transpose()?,
    };
    Ok(ListedConversation {
        summary: parse_summary(row)?,
        overview,
        overview_events: row.get(4)?,
    })
}
