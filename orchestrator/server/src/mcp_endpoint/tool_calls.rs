//! What the tools do.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use accounts::Caller;
use conversations::{ConversationRequest, ConversationsError, TurnEnd, TurnOutcome, TurnUpdate};
use protocol::action::MessageAction;
use protocol::record::ConversationTrigger;
use protocol::{ConversationId, EventId, UserCommand};
use serde_json::{Map, Value, json};

use super::arguments::{self, Decide, Decision, ListConversations, ReadEvents, StartConversation};
use super::arguments::{
    MAX_WAIT_SECS, SendMessage, StopConversation, Wait, check_limit, check_text, parse,
};
use super::events;
use super::tools::McpTool;
use crate::auth::require_write;
use crate::error::ApiError;
use crate::routes::conversations::{ListQuery, page};
use crate::state::ServerState;
use crate::view;
use crate::work::WorkPermit;

/// Maximum length of what an agent has said, in bytes. The rest is in the events.
const MAX_ANSWER: usize = 256 << 10;

/// Minimum time of a wait, in which the stored events of an idle conversation are read.
const MIN_WAIT: Duration = Duration::from_millis(500);

/// The result of a call.
pub(super) struct Reply {
    pub(super) json: Value,
    /// The conversation that the call has created.
    pub(super) created: Option<ConversationId>,
}

impl From<Value> for Reply {
    fn from(json: Value) -> Self {
        Self {
            json,
            created: None,
        }
    }
}

/// Calls a tool as a caller, with the rights of its key.
///
/// # Errors
/// Those of the routes of the REST API.
pub(super) async fn call(
    state: &Arc<ServerState>,
    caller: &Caller,
    tool: McpTool,
    arguments: Map<String, Value>,
) -> Result<Reply, ApiError> {
    if tool.is_change() {
        require_write(caller)?;
    }
    match tool {
        McpTool::StartConversation => start(state, caller, parse(arguments)?).await,
        McpTool::SendMessage => send_message(state, caller, parse(arguments)?).await,
        McpTool::ListConversations => list(state, caller, parse(arguments)?).await,
        McpTool::ReadEvents => read_events(state, caller, parse(arguments)?).await,
        McpTool::Wait => wait(state, caller, parse(arguments)?).await,
        McpTool::StopConversation => stop(state, caller, parse(arguments)?).await,
        McpTool::Decide => decide(state, caller, parse(arguments)?).await,
    }
}

async fn start(
    state: &ServerState,
    caller: &Caller,
    arguments: StartConversation,
) -> Result<Reply, ApiError> {
    let StartConversation {
        message,
        instructions,
        agent,
        repository,
        branch,
    } = arguments;
    if let Some(agent) = &agent
        && !state.choices.agents.contains(agent)
    {
        let problem = format!("must be one of: {}", state.choices.agents.join(", "));
        return Err(ApiError::invalid("agent", problem));
    }
    check_text("instructions", instructions.as_deref().unwrap_or_default())?;
    let request = ConversationRequest {
        owner: caller.user.clone(),
        agent,
        message: Some(to_message(message)?),
        instructions,
        repository: repository.filter(|name| !name.is_empty()),
        branch: branch.filter(|name| !name.is_empty()),
        trigger: ConversationTrigger::Api,
        ..ConversationRequest::default()
    };
    let id = state.conversations.create(request).await?;
    Ok(Reply {
        json: json!({arguments::CONVERSATION: id}),
        created: Some(id),
    })
}

async fn send_message(
    state: &ServerState,
    caller: &Caller,
    arguments: SendMessage,
) -> Result<Reply, ApiError> {
    let SendMessage {
        conversation_id: id,
        message,
    } = arguments;
    state.authorize(caller, &id).await?;
    let message = to_message(message)?;
    let next = EventId(state.conversations.conversations().event_count(&id).await?);
    let command = UserCommand::SendMessage(message);
    state.conversations.apply(&id, command).await?;
    Ok(json!({arguments::CONVERSATION: id, "last_event_id": events::last_id(next)}).into())
}

fn to_message(text: String) -> Result<MessageAction, ApiError> {
    if text.trim().is_empty() {
        return Err(ApiError::invalid("message", "must not be empty"));
    }
    check_text("message", &text)?;
    Ok(MessageAction {
        content: text,
        ..MessageAction::default()
    })
}

async fn list(
    state: &ServerState,
    caller: &Caller,
    arguments: ListConversations,
) -> Result<Reply, ApiError> {
    let ListConversations { limit, page_id } = arguments;
    let query = ListQuery {
        limit: check_limit(limit)?,
        page_id,
        ..ListQuery::default()
    };
    let page = page(state, caller.user.clone(), query).await?;
    let conversations: Vec<_> = page
        .results
        .iter()
        .map(|info| {
            let agent_state = state
                .conversations
                .state(&info.conversation_id)
                .map(|state| state.agent_state);
            json!({
                arguments::CONVERSATION: info.conversation_id,
                "title": info.title,
                "status": info.status,
                "agent_state": agent_state,
                "created_at": info.created_at,
                "last_updated_at": info.last_updated_at,
            })
        })
        .collect();
    Ok(json!({"conversations": conversations, "next_page_id": page.next_page_id}).into())
}

async fn read_events(
    state: &ServerState,
    caller: &Caller,
    arguments: ReadEvents,
) -> Result<Reply, ApiError> {
    let ReadEvents {
        conversation_id: id,
        after_id,
        limit,
    } = arguments;
    state.authorize(caller, &id).await?;
    let limit = check_limit(limit)?;
    let _permit = WorkPermit::acquire(state, caller).await?;
    Ok(
        events::read_page(state.conversations.conversations(), &id, after_id, limit)
            .await?
            .into(),
    )
}

async fn wait(state: &ServerState, caller: &Caller, arguments: Wait) -> Result<Reply, ApiError> {
    let Wait {
        conversation_id: id,
        timeout_secs,
    } = arguments;
    state.authorize(caller, &id).await?;
    if timeout_secs > MAX_WAIT_SECS {
        return Err(ApiError::invalid(
            "timeout_secs",
            format_args!("must be 0 to {MAX_WAIT_SECS}"),
        ));
    }
    let timeout = Duration::from_secs(timeout_secs).max(MIN_WAIT);
    let mut turn = state.conversations.follow_turn(&id, timeout).await?;
    let mut revoked = pin!(state.until_revoked(caller));
    let (mut answer, mut next) = (String::new(), EventId::FIRST);
    let end = loop {
        let update = tokio::select! {
            update = turn.next() => update?,
            () = state.streams.cancelled() => return Err(ConversationsError::ShuttingDown.into()),
            () = &mut revoked => return Err(ApiError::WrongKey),
        };
        match update {
            TurnUpdate::Event(event) => {
                next = event.id.next();
                if let Some(text) = view::agent_text(&event).filter(|_| answer.len() < MAX_ANSWER) {
                    let separator = if answer.is_empty() { "" } else { "\n\n" };
                    answer.push_str(separator);
                    answer.push_str(text);
                }
            }
            TurnUpdate::Ended(end) => break end,
        }
    };
    answer.truncate(answer.floor_char_boundary(MAX_ANSWER));
    let last_event_id = events::last_id(next);
    Ok(to_json(&id, &end, &answer, last_event_id).into())
}

fn to_json(id: &ConversationId, end: &TurnEnd, answer: &str, last_event_id: i64) -> Value {
    let (outcome, detail) = match &end.outcome {
        TurnOutcome::Finished => ("finished", Value::Null),
        TurnOutcome::AwaitingMessage => ("awaiting_message", Value::Null),
        TurnOutcome::AwaitingConfirmation { action } => ("awaiting_confirmation", json!(action)),
        TurnOutcome::Rejected => ("rejected", Value::Null),
        TurnOutcome::Stopped => ("stopped", Value::Null),
        TurnOutcome::Paused => ("paused", Value::Null),
        TurnOutcome::LimitReached(limit) => ("limit_reached", json!(limit)),
        TurnOutcome::Failed(reason) => ("failed", json!(reason)),
        TurnOutcome::Closed => ("closed", Value::Null),
        TurnOutcome::TimedOut => ("working", Value::Null),
    };
    json!({
        arguments::CONVERSATION: id,
        "outcome": outcome,
        "detail": detail,
        "answer": answer,
        "last_event_id": last_event_id,
    })
}

async fn stop(
    state: &ServerState,
    caller: &Caller,
    arguments: StopConversation,
) -> Result<Reply, ApiError> {
    let StopConversation {
        conversation_id: id,
    } = arguments;
    state.authorize(caller, &id).await?;
    state.conversations.stop(&id).await?;
    Ok(json!({arguments::CONVERSATION: id, "status": view::conversation_state(state, &id)}).into())
}

async fn decide(
    state: &ServerState,
    caller: &Caller,
    arguments: Decide,
) -> Result<Reply, ApiError> {
    let Decide {
        conversation_id: id,
        action_id,
        decision,
    } = arguments;
    state.authorize(caller, &id).await?;
    let command = match decision {
        Decision::Confirm => UserCommand::confirm(Some(action_id)),
        Decision::Reject => UserCommand::Reject {
            action: Some(action_id),
            reason: String::new(),
        },
    };
    state.conversations.apply(&id, command).await?;
    Ok(json!({arguments::CONVERSATION: id}).into())
}
