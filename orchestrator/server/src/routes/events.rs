//! Events of a conversation, and messages of the user.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use conversations::UserDecision;
use engine::clock;
use protocol::action::MessageAction;
use protocol::client_api::{AgentMessage, EventPage, EventQuery, Success, TrajectoryExport};
use protocol::{
    Action, AgentState, ConversationId, Event, EventBody, EventId, EventSource, Observation, ObservationKind,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::extract::{ConversationPath, JsonBody, QueryParameters, WorkPermit};
use crate::message::check_message;
use crate::state::ServerState;
use crate::view;

/// Maximum number of events of a page.
const MAX_PAGE_SIZE: usize = 100;

/// States of the agent that a user can request.
const REQUESTED_STATES: [AgentState; 3] = [AgentState::Running, AgentState::Paused, AgentState::Stopped];

/// Maximum number of events per read of the store. Bounds the memory.
const MAX_READ_SIZE: u64 = 64;

/// Length of the events of a page, in bytes of JSON. The page ends with the event that exceeds it.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// Returns a page of events.
#[utoipa::path(get, path = "/api/conversations/{id}/events",
    params(("id" = ConversationId, Path, description = "The conversation"), EventQuery),
    responses((status = 200, description = "The page", body = EventPage)))]
pub(super) async fn page(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    QueryParameters(query): QueryParameters<EventQuery>,
) -> Result<Json<EventPage>, ApiError> {
    let selection = Selection::new(&query)?;
    let conversations = state.conversations.conversations();
    // As in V0, a negative number is the id of no event.
    let to_id = |id: i64| u64::try_from(id).unwrap_or(0);
    let mut end = query.end_id.map_or(u64::MAX, |last| to_id(last.saturating_add(1)));
    if query.reverse {
        end = end.min(conversations.event_count(&id).await?);
    }
    let (mut events, mut range) = (Vec::new(), to_id(query.start_id)..end);
    let mut is_known = query.reverse;
    // Most pages select all events. Those that do not read on in larger steps.
    let mut read_size = MAX_READ_SIZE.min(query.limit as u64 + 1);
    let (mut bytes, mut is_cut) = (0, false);
    while !range.is_empty() && events.len() <= query.limit && bytes <= MAX_PAGE_BYTES {
        let (from, count) = if query.reverse {
            let from = range.end.saturating_sub(read_size).max(range.start);
            let count = range.end - from;
            range.end = from;
            (from, count)
        } else {
            let count = read_size.min(range.end - range.start);
            let from = range.start;
            range.start += count;
            (from, count)
        };
        let mut read = conversations.read(&id, EventId(from), count as usize).await?;
        is_known |= !read.is_empty();
        if query.reverse {
            read.reverse();
        } else if (read.len() as u64) < count {
            range.end = range.start;
        }
        for event in &read {
            is_cut = bytes > MAX_PAGE_BYTES;
            if is_cut || events.len() > query.limit {
                break;
            }
            if let Some(event) = selection.select(event) {
                bytes += event.get().len();
                events.push(event);
            }
        }
        read_size = (read_size * 2).min(MAX_READ_SIZE);
    }
    if !is_known {
        // Fails if there is no such conversation.
        conversations.event_count(&id).await?;
    }
    let has_more = events.len() > query.limit || is_cut || (bytes > MAX_PAGE_BYTES && !range.is_empty());
    events.truncate(query.limit);
    Ok(Json(EventPage { events, has_more }))
}

/// The filters of a page.
struct Selection<'a> {
    query: &'a EventQuery,
    text: Option<String>,
    include_types: Vec<&'a str>,
    exclude_types: Vec<&'a str>,
    source: Option<EventSource>,
    /// The earliest time, in seconds since the Unix epoch.
    start: Option<f64>,
    /// The latest time, in seconds since the Unix epoch.
    end: Option<f64>,
}

impl<'a> Selection<'a> {
    fn new(query: &'a EventQuery) -> Result<Self, ApiError> {
        if query.limit > MAX_PAGE_SIZE {
            return Err(ApiError::invalid("limit", format_args!("must be 0 to {MAX_PAGE_SIZE}")));
        }
        let source = |name: &str| match name {
            "agent" => Ok(EventSource::Agent),
            "user" => Ok(EventSource::User),
            "environment" => Ok(EventSource::Environment),
            _ => Err(ApiError::invalid("source", "must be agent, user or environment")),
        };
        let date = |field, text: Option<&str>| {
            let to_seconds = |text| clock::parse_time(text).map_err(|error| ApiError::invalid(field, error));
            text.map(to_seconds).transpose()
        };
        let types = |text: &'a Option<String>| -> Vec<&'a str> {
            let names = text.iter().flat_map(|text| text.split(','));
            names.map(str::trim).filter(|name| !name.is_empty()).collect()
        };
        // As in V0, an empty filter is none.
        let given = |text: &'a Option<String>| text.as_deref().filter(|text| !text.is_empty());
        Ok(Self {
            query,
            text: query.query.as_ref().map(|text| text.to_lowercase()),
            include_types: types(&query.include_types),
            exclude_types: types(&query.exclude_types),
            source: given(&query.source).map(source).transpose()?,
            start: date("start_date", given(&query.start_date))?,
            end: date("end_date", given(&query.end_date))?,
        })
    }

    /// Returns the JSON of an event that is selected.
    fn select(&self, event: &Event) -> Option<Box<RawValue>> {
        let kind = event.body.kind();
        let is_selected = (self.include_types.is_empty() || self.include_types.contains(&kind))
            && !self.exclude_types.contains(&kind)
            && !(self.query.exclude_hidden && is_hidden(event))
            && self.source.is_none_or(|source| event.source == source)
            && self.start.is_none_or(|start| clock::epoch_seconds(&event.timestamp) >= start)
            && self.end.is_none_or(|end| clock::epoch_seconds(&event.timestamp) <= end);
        let json = is_selected.then(|| view::event_json(event)).flatten()?;
        let has_text = self.text.as_ref().is_none_or(|text| json.get().to_lowercase().contains(text));
        has_text.then_some(json)
    }
}

fn is_hidden(event: &Event) -> bool {
    match &event.body {
        EventBody::Action(Action::Run(run)) => run.hidden,
        EventBody::Observation(Observation { kind: ObservationKind::Run(run), .. }) => run.hidden,
        _ => false,
    }
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
    JsonBody(event): JsonBody<Value>,
) -> Result<Json<Success>, ApiError> {
    UserEvent::parse(event)?.apply(&state, &id).await?;
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
    send_message(&state, &id, MessageAction { content: message, ..MessageAction::default() }).await?;
    Ok(Json(Success::REPLY))
}

/// An event that a client sends as the user.
pub(crate) enum UserEvent {
    Message(MessageAction),
    ChangeState(AgentState),
    Decision {
        /// The action that the decision is about. `None` from clients of V0, whose events do not name it.
        action: Option<EventId>,
        decision: UserDecision,
    },
}

impl UserEvent {
    pub(crate) fn parse(event: Value) -> Result<Self, ApiError> {
        let action_id = event.pointer("/args/action_id").filter(|id| !id.is_null()).cloned();
        match parse_action(event)? {
            Action::Message(message) => {
                let MessageAction { content, image_urls, file_urls, .. } = message;
                Ok(Self::Message(MessageAction {
                    content,
                    image_urls,
                    file_urls,
                    ..MessageAction::default()
                }))
            }
            Action::ChangeAgentState(change) => {
                let decision = match change.agent_state {
                    AgentState::UserConfirmed => UserDecision::Approve,
                    AgentState::UserRejected => UserDecision::Reject(String::new()),
                    state if REQUESTED_STATES.contains(&state) => return Ok(Self::ChangeState(state)),
                    _ => {
                        return Err(ApiError::invalid(
                            "args.agent_state",
                            "not a state that a user can request",
                        ));
                    }
                };
                let action = action_id.map(serde_json::from_value).transpose();
                let action = action.map_err(|error| ApiError::invalid("args.action_id", error))?;
                Ok(Self::Decision { action, decision })
            }
            _ => Err(ApiError::invalid("action", "a user sends only message and change_agent_state")),
        }
    }

    pub(crate) async fn apply(self, state: &ServerState, id: &ConversationId) -> Result<(), ApiError> {
        match self {
            Self::Message(message) => send_message(state, id, message).await,
            Self::ChangeState(agent_state) => {
                Ok(state.conversations.change_agent_state(id, agent_state).await?)
            }
            Self::Decision { action, decision } => {
                Ok(state.conversations.decide(id, action, decision).await?)
            }
        }
    }
}

async fn send_message(
    state: &ServerState,
    id: &ConversationId,
    message: MessageAction,
) -> Result<(), ApiError> {
    let has_images = message.image_urls.as_ref().is_some_and(|urls| !urls.is_empty());
    if message.content.trim().is_empty() && !has_images {
        return Err(ApiError::invalid("message", "must not be empty"));
    }
    check_message("message", &message)?;
    Ok(state.conversations.send_message(id, message).await?)
}

/// Parses the action in a client's event, which has no id, time or source.
fn parse_action(event: Value) -> Result<Action, ApiError> {
    let Value::Object(mut event) = event else {
        return Err(ApiError::invalid("body", "an event is an object"));
    };
    event.insert("id".to_owned(), json!(0));
    event.insert("timestamp".to_owned(), json!("1970-01-01T00:00:00"));
    event.insert("source".to_owned(), json!(EventSource::User));
    let event = Event::from_value(&Value::Object(event)).map_err(|error| ApiError::invalid("body", error))?;
    match event.body {
        EventBody::Action(action) => Ok(action),
        _ => Err(ApiError::invalid("action", "an event of the user is an action")),
    }
}

/// Returns all events, without screenshots.
#[utoipa::path(get, path = "/api/conversations/{id}/trajectory",
    params(("id" = ConversationId, Path, description = "The conversation")),
    responses((status = 200, description = "The events", body = TrajectoryExport)))]
pub(super) async fn trajectory(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    _permit: WorkPermit,
) -> Result<Json<TrajectoryExport>, ApiError> {
    let events = state.conversations.conversations().export(&id, false).await?;
    Ok(Json(TrajectoryExport { trajectory: events }))
}
