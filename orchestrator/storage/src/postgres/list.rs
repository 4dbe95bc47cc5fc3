//! Reads conversations with their overviews.
//!
//! Scans the entries of all conversations, for the reasons that the store in SQLite has.

use engine::events::{
    ConversationPage, ConversationQuery, ListedConversation, Overview, StoreError,
};
use protocol::record::ConversationTrigger;
use protocol::{AgentState, ConversationId, UserId};
use tokio_postgres::Row;

use super::database::{Database, DatabaseError};
use super::read::{BoxError, READ_CONVERSATIONS, summary};
use crate::failure::failed;
use crate::variant_name::from_name;

/// The columns of a conversation, the first four as in the list without overviews.
macro_rules! columns {
    () => {
        "conversations.id, conversations.events, conversations.created_at, conversations.last_updated_at,
         conversations.overview_events, conversations.agent_state, conversations.cost,
         given_title, first_line, model, folder, repository, branch, conversations.owner,
         git_provider, conversation_trigger"
    };
}

const FIND: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM conversations LEFT JOIN overviews ON conversation = number WHERE id = $1"
);

/// Selects the numbers first, so that only the rows of the page are read completely. Texts are read
/// only if they are filtered.
const LIST: &str = concat!(
    "WITH page AS MATERIALIZED (
        SELECT number FROM conversations
        WHERE ($1::text IS NULL OR (last_updated_at, id) < ($1, $2))
            AND ($3::text[] IS NULL OR coalesce(agent_state, $4) = ANY ($3))
            AND ($9::text IS NULL OR owner = $9)
            AND ($10::bytea IS NULL OR $10 = coalesce(
                (SELECT conversation_trigger FROM overviews WHERE conversation = number), $11
            ))
            AND (num_nonnulls($5::bytea, $6::bytea, $7::bytea) = 0 OR EXISTS (
                SELECT FROM overviews WHERE conversation = number
                    AND ($5 IS NULL OR position($5 IN search_title) > 0 OR position($5 IN search_message) > 0
                        OR position($5 IN search_settings) > 0)
                    AND ($6 IS NULL OR folder = $6)
                    AND ($7 IS NULL OR position($7 IN repository) > 0)
            ))
        ORDER BY last_updated_at DESC, id DESC
        LIMIT $8
    )
    SELECT ",
    columns!(),
    " FROM page JOIN conversations USING (number) LEFT JOIN overviews ON conversation = number
    ORDER BY last_updated_at DESC, id DESC"
);

/// The time and the id of a row, which may be damaged.
type RowPosition = (String, String);

/// Lists the conversations that a query selects. Reads on while damaged entries take the place of
/// others.
pub(super) async fn conversations(
    database: &Database,
    query: &ConversationQuery,
) -> Result<ConversationPage, StoreError> {
    let before = query.before.as_ref();
    let mut last = before.map(|before| {
        (
            before.last_updated_at.as_str().to_owned(),
            before.id.to_string(),
        )
    });
    let mut page = ConversationPage::default();
    while page.conversations.len() < query.limit {
        let rows = read_rows(database, query, last.as_ref()).await;
        let rows = rows.map_err(|error| failed(READ_CONVERSATIONS, error))?;
        for row in &rows {
            match entry(row) {
                Ok(_) if page.conversations.len() == query.limit => break,
                Ok(listed) => page.conversations.push(listed),
                Err(error) => page.damaged.push(error),
            }
        }
        if rows.len() < query.limit {
            break;
        }
        last = rows
            .last()
            .map(position)
            .transpose()
            .map_err(|error| failed(READ_CONVERSATIONS, error))?;
    }
    Ok(page)
}

/// Reads as many rows as the limit, after a row.
async fn read_rows(
    database: &Database,
    query: &ConversationQuery,
    last: Option<&RowPosition>,
) -> Result<Vec<Row>, DatabaseError> {
    let ConversationQuery {
        text,
        agent_states,
        folder,
        repository,
        trigger,
        owner,
        before: _,
        limit,
    } = query;
    let names: Vec<_> = agent_states.iter().map(|state| state.as_str()).collect();
    let bytes = |text: &'_ Option<String>| text.as_ref().map(|text| text.as_bytes().to_owned());
    database
        .query(
            LIST,
            &[
                &last.map(|(time, _)| time),
                &last.map(|(_, id)| id),
                &(!names.is_empty()).then_some(names),
                &AgentState::default().as_str(),
                &bytes(text),
                &bytes(folder),
                &bytes(repository),
                &i64::try_from(*limit).unwrap_or(i64::MAX),
                &owner.as_ref().map(UserId::as_str),
                &trigger.map(|trigger| trigger.as_str().as_bytes()),
                &ConversationTrigger::default().as_str().as_bytes(),
            ],
        )
        .await
}

/// Finds one conversation. A damaged row is an error.
pub(super) async fn find(
    database: &Database,
    conversation: &ConversationId,
) -> Result<Option<ListedConversation>, StoreError> {
    let rows = database.query(FIND, &[&conversation.as_str()]).await;
    rows.map_err(|error| failed(READ_CONVERSATIONS, error))?
        .first()
        .map(entry)
        .transpose()
}

fn position(row: &Row) -> Result<RowPosition, tokio_postgres::Error> {
    Ok((row.try_get(3)?, row.try_get(0)?))
}

fn entry(row: &Row) -> Result<ListedConversation, StoreError> {
    parse(row).map_err(|source| {
        let conversation = row.try_get(0).unwrap_or_default();
        StoreError::DamagedEntry {
            conversation,
            source,
        }
    })
}

fn parse(row: &Row) -> Result<ListedConversation, BoxError> {
    let overview = Overview {
        agent_state: row
            .try_get::<_, Option<&str>>(5)?
            .map(AgentState::from_name),
        cost: row.try_get(6)?,
        given_title: text(row, 7)?,
        first_line: text(row, 8)?,
        model: text(row, 9)?,
        folder: text(row, 10)?,
        repository: text(row, 11)?,
        branch: text(row, 12)?,
        git_provider: text(row, 14)?.and_then(from_name),
        trigger: text(row, 15)?.and_then(from_name),
        owner: row
            .try_get::<_, Option<String>>(13)?
            .map(UserId::try_from)
            .transpose()?,
    };
    let overview_events = u64::try_from(row.try_get::<_, i64>(4)?)?;
    Ok(ListedConversation {
        summary: summary(row)?,
        overview,
        overview_events,
    })
}

fn text(row: &Row, column: usize) -> Result<Option<String>, BoxError> {
    Ok(row
        .try_get::<_, Option<Vec<u8>>>(column)?
        .map(String::from_utf8)
        .transpose()?)
}
