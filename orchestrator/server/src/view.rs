//! Events and conversations in the form in which clients see them.

use conversations::{ConversationEntry, event_value};
use engine::conversation::{SandboxConnection, State};
use engine::events::Overview;
use git_providers::repository_name;
use protocol::client_api::v2::ConversationStatus;
use protocol::client_api::{ConversationInfo, ConversationRuntimeStatus, ConversationState};
use protocol::record::ConversationTrigger;
use protocol::{Action, AgentState, ConversationId, Event, EventBody, EventSource};

use crate::state::ServerState;

/// Maximum number of characters of an action in a text.
const MAX_ACTION_EXCERPT: usize = 200;

/// Number of characters of the id in the title of a conversation without one.
const DEFAULT_TITLE_ID_CHARS: usize = 5;

/// Returns what the agent says to the user with an event. Messages of other agents are not for the
/// user.
pub(crate) fn agent_text(event: &Event) -> Option<&str> {
    if event.delegation.is_some() || event.source != EventSource::Agent {
        return None;
    }
    match &event.body {
        EventBody::Action(Action::Message(message)) => Some(&message.content),
        EventBody::Action(Action::Finish(finish)) => Some(&finish.final_thought),
        EventBody::Action(Action::Reject(reject)) => reject.outputs.get("reason")?.as_str(),
        _ => None,
    }
}

/// Returns the kind of an action, and the start of what it is about.
pub(crate) fn describe_action(action: &Event) -> String {
    let json = event_value(action).unwrap_or_default();
    let kind = json["action"].as_str().unwrap_or_default();
    let subject = ["command", "code", "path", "url", "name"]
        .iter()
        .find_map(|key| json["args"][key].as_str());
    let excerpt: String = subject
        .unwrap_or_default()
        .chars()
        .take(MAX_ACTION_EXCERPT)
        .collect();
    format!("{kind} {excerpt}").trim_end().to_owned()
}

/// Whether a conversation runs in this process.
pub(crate) fn conversation_state(server: &ServerState, id: &ConversationId) -> ConversationState {
    match server.conversations.state(id) {
        None => ConversationState::Stopped,
        Some(state) if is_starting(&state) => ConversationState::Starting,
        Some(_) => ConversationState::Running,
    }
}

/// Returns a conversation as clients see it. `None` if even its entry cannot be read.
pub(crate) fn conversation_info(
    server: &ServerState,
    entry: &ConversationEntry,
) -> Option<ConversationInfo> {
    let summary = entry.summary.as_ref()?;
    let overview = entry.overview.as_ref().ok();
    let running = server.conversations.state(&summary.id);
    let status = match entry.status() {
        ConversationStatus::Damaged => ConversationState::Archived,
        // Another process runs it.
        _ if entry.is_locked && running.is_none() => ConversationState::Running,
        _ => conversation_state(server, &summary.id),
    };
    Some(ConversationInfo {
        conversation_id: summary.id.clone(),
        title: title(&summary.id, overview.map(Overview::title)),
        last_updated_at: summary.last_updated_at.with_utc_zone(),
        status,
        runtime_status: running.as_deref().map(runtime_status),
        selected_repository: repository(entry),
        selected_branch: overview.and_then(|overview| overview.branch.clone()),
        git_provider: overview.and_then(|overview| overview.git_provider),
        trigger: Some(trigger(entry)),
        num_connections: server.connection_count(&summary.id),
        url: None,
        session_api_key: None,
        created_at: summary.created_at.with_utc_zone(),
        pr_number: Vec::new(),
        conversation_version: "V0",
        sub_conversation_ids: Vec::new(),
    })
}

/// Returns the title of a conversation. One without a title or a message has V0's default.
fn title(id: &ConversationId, title: Option<&str>) -> String {
    match title.filter(|title| !title.is_empty()) {
        Some(title) => title.to_owned(),
        None => {
            format!(
                "Conversation {}",
                id.as_str()
                    .chars()
                    .take(DEFAULT_TITLE_ID_CHARS)
                    .collect::<String>()
            )
        }
    }
}

/// Returns the repository in the workspace of a conversation, as V0 names it. `None` if there is
/// none.
pub(crate) fn repository(entry: &ConversationEntry) -> Option<String> {
    let overview = entry.overview.as_ref().ok()?;
    Some(repository_name(
        overview.git_provider,
        overview.repository.as_deref()?,
    ))
}

/// Returns the URL of the repository in the workspace of a conversation. `None` if there is none.
pub(crate) fn repository_url(entry: &ConversationEntry) -> Option<&str> {
    entry.overview.as_ref().ok()?.repository.as_deref()
}

/// Returns what created a conversation. Those of the command line and of older versions count as
/// V0's default.
fn trigger(entry: &ConversationEntry) -> ConversationTrigger {
    entry
        .overview
        .as_ref()
        .ok()
        .and_then(|overview| overview.trigger)
        .unwrap_or_default()
}

/// Whether the agent waits for its sandbox. An idle agent may have none.
fn is_starting(state: &State) -> bool {
    let is_connecting = state.schedule.sandbox == SandboxConnection::Connecting;
    state.agent_state == AgentState::Loading
        || state.lease.is_none() && (is_connecting || state.agent_state == AgentState::Running)
}

fn runtime_status(state: &State) -> ConversationRuntimeStatus {
    match state.agent_state {
        // As in V0, an error of the model is none of the sandbox.
        AgentState::Error if state.lease.is_none() => ConversationRuntimeStatus::Error,
        _ if !is_starting(state) => ConversationRuntimeStatus::Ready,
        _ if state.lease.is_some() => ConversationRuntimeStatus::SettingUpWorkspace,
        _ => ConversationRuntimeStatus::StartingRuntime,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_is_the_start_of_the_id_when_there_is_none() {
        let title = |id: &str, given| title(&id.parse().unwrap(), given);
        assert_eq!(title("0123456789abcdef", Some("Fix it")), "Fix it");
        assert_eq!(title("0123456789abcdef", Some("")), "Conversation 01234");
        assert_eq!(title("abc", None), "Conversation abc");
    }
}
