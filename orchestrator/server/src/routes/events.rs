//! Events of a conversation, and messages of the user.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::Response;
use conversations::{SelectedEvents, event_json};
use engine::clock;
use protocol::client_api::{self, AgentMessage, EventPage, Success};
use protocol::event_query::parse_names;
use protocol::{
    Action, AgentState, ConversationId, Event, EventBody, EventId, EventQuery, EventSource,
    UserCommand,
};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::extract::{ConversationPath, JsonBody, QueryParameters, parse_json, read_body};
use crate::state::ServerState;
use crate::work::{WorkPermit, parse_body};

/// Maximum number of events of a page.
const MAX_PAGE_SIZE: usize = 100;

/// Length of the events of a page, in bytes of JSON. The page ends with the event that exceeds it.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// Returns a page of events.
#[utoipa::path(get, path = "/api/conversations/{id}/events",
    params(("id" = ConversationId, Path, description = "The conversation"), client_api::EventPageQuery),
    responses((status = 200, description = "The page", body = EventPage)))]
pub(super) async fn page(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    QueryParameters(query): QueryParameters<client_api::EventPageQuery>,
    permit: WorkPermit,
) -> Result<Response, ApiError> {
    let conversations = state.conversations.conversations();
    let query = to_query(&query)?;
    let is_empty = query.limit == 0;
    let SelectedEvents {
        events, has_more, ..
    } = conversations
        .query(&id, query, MAX_PAGE_BYTES, event_json)
        .await?;
    if has_more && events.is_empty() && !is_empty {
        // The client would not know where to continue.
        return Err(ApiError::SearchTimeout);
    }
    permit.respond(EventPage { events, has_more }).await
}

/// Converts V0's parameters.
fn to_query(parameters: &client_api::EventPageQuery) -> Result<EventQuery, ApiError> {
    if parameters.limit > MAX_PAGE_SIZE {
        return Err(ApiError::invalid(
            "limit",
            format_args!("must be 0 to {MAX_PAGE_SIZE}"),
        ));
    }
    let source = |name: &str| match name {
        "agent" => Ok(EventSource::Agent),
        "user" => Ok(EventSource::User),
        "environment" => Ok(EventSource::Environment),
        _ => Err(ApiError::invalid(
            "source",
            "must be agent, user or environment",
        )),
    };
    let date = |field, text: Option<&str>| {
        let to_seconds =
            |text| clock::parse_time(text).map_err(|error| ApiError::invalid(field, error));
        text.map(to_seconds).transpose()
    };
    // As in V0, an empty filter is none.
    fn given(text: &Option<String>) -> Option<&str> {
        text.as_deref().filter(|text| !text.is_empty())
    }
    // As in V0, a negative number is the id of no event.
    let to_id = |id: i64| EventId(u64::try_from(id).unwrap_or(0));
    Ok(EventQuery {
        from: to_id(parameters.start_id),
        until: parameters.end_id.map(|last| to_id(last.saturating_add(1))),
        is_reverse: parameters.reverse,
        limit: parameters.limit,
        kinds: parse_names(parameters.include_types.as_deref().unwrap_or_default()),
        excluded_kinds: parse_names(parameters.exclude_types.as_deref().unwrap_or_default()),
        excludes_hidden: parameters.exclude_hidden,
        source: given(&parameters.source).map(source).transpose()?,
        earliest: date("start_date", given(&parameters.start_date))?,
        latest: date("end_date", given(&parameters.end_date))?,
        text: parameters.query.clone(),
    })
}

/// Sends an event as the user: a message, or a change of the agent's state. Runs the conversation.
#[utoipa::path(post, path = "/api/conversations/{id}/events",
    params(("id" = ConversationId, Path, description = "The conversation")),
    request_body(content = Object, description = "`action` and `args`, as in V0's events. A decision names its action with \
        `args.action_id`; without it, it counts for the action that awaits confirmation since a second or longer"),
    responses((status = 200, description = "It is stored", body = Success)))]
pub(super) async fn append(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    request: Request,
) -> Result<Json<Success>, ApiError> {
    let (_, body) = read_body(request).await?;
    let command = parse_body(&state, body, |body| parse_command(parse_json(body)?)).await?;
    state.conversations.apply(&id, command).await?;
    Ok(Json(Success::REPLY))
}

/// Sends a message as the user. Runs the conversation.
#[utoipa::path(post, path = "/api/conversations/{id}/message",
    params(("id" = ConversationId, Path, description = "The conversation")),
    request_body = AgentMessage,
    responses((status = 200, description = "It is stored", body = Success)))]
pub(super) async fn message(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    JsonBody(AgentMessage { message }): JsonBody<AgentMessage>,
) -> Result<Json<Success>, ApiError> {
    state
        .conversations
        .apply(&id, UserCommand::message(message))
        .await?;
    Ok(Json(Success::REPLY))
}

/// Parses an event of V0 that a client sends as the user. V0's decisions do not name their action.
pub(crate) fn parse_command(event: Value) -> Result<UserCommand, ApiError> {
    let action_id = event
        .pointer("/args/action_id")
        .filter(|id| !id.is_null())
        .cloned();
    let change = match parse_action(event)? {
        Action::Message(message) => return Ok(UserCommand::SendMessage(message)),
        Action::ChangeAgentState(change) => change,
        _ => {
            return Err(ApiError::invalid(
                "action",
                "a user sends only message and change_agent_state",
            ));
        }
    };
    let action = || action_id.map(serde_json::from_value).transpose();
    let action = || action().map_err(|error| ApiError::invalid("args.action_id", error));
    match change.agent_state {
        AgentState::Running => Ok(UserCommand::resume()),
        AgentState::Paused => Ok(UserCommand::Pause),
        AgentState::Stopped => Ok(UserCommand::Stop),
        AgentState::UserConfirmed => Ok(UserCommand::confirm(action()?)),
        AgentState::UserRejected => Ok(UserCommand::Reject {
            action: action()?,
            reason: String::new(),
        }),
        _ => Err(ApiError::invalid(
            "args.agent_state",
            "not a state that a user can request",
        )),
    }
}

/// Parses the action in a client's event, which has no id, time or source.
fn parse_action(event: Value) -> Result<Action, ApiError> {
    let Value::Object(mut event) = event else {
        return Err(ApiError::invalid("body", "an event is an object"));
    };
    event.insert("id".to_owned(), json!(0));
    event.insert("timestamp".to_owned(), json!("1970-01-01T00:00:00"));
    event.insert("source".to_owned(), json!(EventSource::User));
    let event = Event::from_value(&Value::Object(event))
        .map_err(|error| ApiError::invalid("body", error))?;
    match event.body {
        EventBody::Action(action) => Ok(action),
        _ => Err(ApiError::invalid(
            "action",
            "an event of the user is an action",
        )),
    }
}
