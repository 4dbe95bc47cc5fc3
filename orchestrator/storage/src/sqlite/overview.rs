//! Changes of the overview of a conversation, within a write transaction.

use engine::events::{Overview, OverviewChange};
use protocol::client_api::git::GitProvider;
use protocol::record::ConversationTrigger;
use protocol::{AgentState, UserId};
use rusqlite::{Connection, params};

/// Merges the first line and the first message only if there is none, and other texts if the change
/// has them.
const MERGE_TEXTS: &str = "
    INSERT INTO overviews (
        conversation, given_title, first_line, model, folder, repository, branch,
        search_title, search_message, search_settings, git_provider, conversation_trigger
    ) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
    ON CONFLICT (conversation) DO UPDATE SET
        given_title = coalesce(excluded.given_title, given_title),
        first_line = coalesce(first_line, excluded.first_line),
        model = coalesce(excluded.model, model),
        folder = coalesce(excluded.folder, folder),
        repository = coalesce(excluded.repository, repository),
        branch = coalesce(excluded.branch, branch),
        search_title = coalesce(excluded.search_title, search_title),
        search_message = coalesce(search_message, excluded.search_message),
        search_settings = coalesce(excluded.search_settings, search_settings),
        git_provider = coalesce(excluded.git_provider, git_provider),
        conversation_trigger = coalesce(excluded.conversation_trigger, conversation_trigger)";

const MERGE_STATE: &str = "
    UPDATE conversations SET
        overview_events = ?2,
        agent_state = coalesce(?3, agent_state),
        cost = coalesce(?4, cost),
        owner = coalesce(owner, ?5)
    WHERE number = ?1";

/// Merges the change of the events that follow those which the overview covers, up to `end`.
pub(super) fn merge(
    connection: &Connection,
    number: i64,
    end: u64,
    change: &OverviewChange,
) -> rusqlite::Result<()> {
    let Overview {
        owner,
        agent_state,
        cost,
        ..
    } = &change.overview;
    let agent_state = agent_state.map(AgentState::as_str);
    let owner = owner.as_ref().map(UserId::as_str);
    connection.prepare_cached(MERGE_STATE)?.execute(params![
        number,
        end,
        agent_state,
        cost,
        owner
    ])?;
    merge_texts(connection, number, change)
}

/// Merges the texts of a change, if it has any.
pub(super) fn merge_texts(
    connection: &Connection,
    number: i64,
    change: &OverviewChange,
) -> rusqlite::Result<()> {
    if !change.has_texts() {
        return Ok(());
    }
    let OverviewChange { overview, search } = change;
    connection.prepare_cached(MERGE_TEXTS)?.execute(params![
        number,
        overview.given_title,
        overview.first_line,
        overview.model,
        overview.folder,
        overview.repository,
        overview.branch,
        search.title,
        search.message,
        search.settings,
        overview.git_provider.map(GitProvider::as_str),
        overview.trigger.map(ConversationTrigger::as_str),
    ])?;
    Ok(())
}
