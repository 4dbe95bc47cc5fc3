//! Events of a conversation, and messages of the user.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::Response;
use conversations::Conversations;
use engine::clock;
use protocol::action::MessageAction;
use protocol::client_api::{AgentMessage, EventPage, EventQuery, Success};
use protocol::{
    Action, AgentState, ConversationId, Event, EventBody, EventId, EventSource, Observation,
    ObservationKind, SecurityRisk, UserCommand,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::error::ApiError;
use crate::extract::{ConversationPath, JsonBody, QueryParameters, parse_json, read_body};
use crate::message::check_message;
use crate::state::ServerState;
use crate::view;
use crate::work::{WorkPermit, parse_body, run_blocking};

/// Maximum number of events of a page.
const MAX_PAGE_SIZE: usize = 100;

/// Maximum number of events per read of the store. Bounds the memory.
const MAX_READ_SIZE: u64 = 64;

/// Length of the events of a page, in bytes of JSON. The page ends with the event that exceeds it.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// Time after which a page ends with what is found so far: few events of a long log may be
/// selected.
const MAX_SEARCH_TIME: Duration = Duration::from_secs(20);

/// Returns a page of events.
#[utoipa::path(get, path = "/api/conversations/{id}/events",
    params(("id" = ConversationId, Path, description = "The conversation"), EventQuery),
    responses((status = 200, description = "The page", body = EventPage)))]
pub(super) async fn page(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    QueryParameters(query): QueryParameters<EventQuery>,
    permit: WorkPermit,
) -> Result<Response, ApiError> {
    let mut page = SelectedEvents::new(Selection::new(&query)?, query.limit);
    let conversations = state.conversations.conversations();
    // As in V0, a negative number is the id of no event.
    let to_id = |id: i64| u64::try_from(id).unwrap_or(0);
    let mut end = query
        .end_id
        .map_or(u64::MAX, |last| to_id(last.saturating_add(1)));
    if query.reverse {
        end = end.min(conversations.event_count(&id).await?);
    }
    let mut scan = Scan {
        conversations,
        id: &id,
        range: to_id(query.start_id)..end,
        is_reverse: query.reverse,
        // Most pages select all events. Those that do not read on in larger steps.
        read_size: MAX_READ_SIZE.min(query.limit as u64 + 1),
    };
    let mut is_known = query.reverse;
    let deadline = Instant::now() + MAX_SEARCH_TIME;
    while !page.has_more {
        let events = scan.next().await?;
        if events.is_empty() {
            break;
        }
        is_known = true;
        page = run_blocking(move || page.with(&events)).await?;
        if Instant::now() >= deadline {
            page.cut()?;
        }
    }
    if !is_known {
        // Fails if there is no such conversation.
        conversations.event_count(&id).await?;
    }
    permit
        .respond(EventPage {
            events: page.events,
            has_more: page.has_more,
        })
        .await
}

/// Reads a range of a log in steps.
struct Scan<'a> {
    conversations: &'a Conversations,
    id: &'a ConversationId,
    /// The ids that are not read yet.
    range: Range<u64>,
    is_reverse: bool,
    read_size: u64,
}

impl Scan<'_> {
    /// Returns the next events. Empty at the end.
    async fn next(&mut self) -> Result<Vec<Event>, ApiError> {
        while !self.range.is_empty() {
            let count = self.read_size.min(self.range.end - self.range.start);
            let from = if self.is_reverse {
                self.range.end - count
            } else {
                self.range.start
            };
            let mut events = self
                .conversations
                .read_page(self.id, EventId(from), count as usize)
                .await?;
            let Some(EventId(past)) = events.last().map(|last| last.id.next()) else {
                break;
            };
            if !self.is_reverse {
                self.range.start = past;
            } else if past < self.range.end {
                // The events are so large that the page ends before the range does.
                self.read_size = (count / 2).max(1);
                continue;
            } else {
                self.range.end = from;
                events.reverse();
            }
            self.read_size = (self.read_size * 2).min(MAX_READ_SIZE);
            return Ok(events);
        }
        Ok(Vec::new())
    }
}

/// A page in progress.
struct SelectedEvents {
    selection: Selection,
    limit: usize,
    events: Vec<Box<RawValue>>,
    size_bytes: usize,
    /// Whether further events are selected, or may be.
    has_more: bool,
}

impl SelectedEvents {
    fn new(selection: Selection, limit: usize) -> Self {
        Self {
            selection,
            limit,
            events: Vec::new(),
            size_bytes: 0,
            has_more: false,
        }
    }

    /// Adds the selected ones of the next events until the page is full.
    fn with(mut self, next: &[Event]) -> Self {
        for event in next {
            if self.size_bytes > MAX_PAGE_BYTES {
                self.has_more = true;
                break;
            }
            let Some(json) = self.selection.select(event) else {
                continue;
            };
            if self.events.len() == self.limit {
                self.has_more = true;
                break;
            }
            self.size_bytes += json.get().len();
            self.events.push(json);
        }
        self
    }

    /// Ends the page early. From a page without an event, the client would not know where to
    /// continue.
    fn cut(&mut self) -> Result<(), ApiError> {
        self.has_more = true;
        if self.events.is_empty() {
            Err(ApiError::SearchTimeout)
        } else {
            Ok(())
        }
    }
}

/// The filters of a page.
struct Selection {
    exclude_hidden: bool,
    text: Option<String>,
    include_types: Vec<String>,
    exclude_types: Vec<String>,
    source: Option<EventSource>,
    /// The earliest time, in seconds since the Unix epoch.
    start: Option<f64>,
    /// The latest time, in seconds since the Unix epoch.
    end: Option<f64>,
}

impl Selection {
    fn new(query: &EventQuery) -> Result<Self, ApiError> {
        if query.limit > MAX_PAGE_SIZE {
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
        let types = |text: &Option<String>| -> Vec<String> {
            let names = text.iter().flat_map(|text| text.split(','));
            names
                .map(str::trim)
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect()
        };
        // As in V0, an empty filter is none.
        fn given(text: &Option<String>) -> Option<&str> {
            text.as_deref().filter(|text| !text.is_empty())
        }
        Ok(Self {
            exclude_hidden: query.exclude_hidden,
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
        let has_kind = |types: &[String]| types.iter().any(|name| name == kind);
        let is_selected = (self.include_types.is_empty() || has_kind(&self.include_types))
            && !has_kind(&self.exclude_types)
            && !(self.exclude_hidden && is_hidden(event))
            && self.source.is_none_or(|source| event.source == source)
            && self
                .start
                .is_none_or(|start| clock::epoch_seconds(&event.timestamp) >= start)
            && self
                .end
                .is_none_or(|end| clock::epoch_seconds(&event.timestamp) <= end);
        let json = is_selected.then(|| view::event_json(event)).flatten()?;
        let has_text = self
            .text
            .as_ref()
            .is_none_or(|text| json.get().to_lowercase().contains(text));
        has_text.then_some(json)
    }
}

fn is_hidden(event: &Event) -> bool {
    match &event.body {
        EventBody::Action(Action::Run(run)) => run.hidden,
        EventBody::Observation(Observation {
            kind: ObservationKind::Run(run),
            ..
        }) => run.hidden,
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
    request: Request,
) -> Result<Json<Success>, ApiError> {
    let (_, body) = read_body(request).await?;
    let command = parse_body(&state, body, |body| parse_command(parse_json(body)?)).await?;
    apply(&state, &id, command).await?;
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
    apply(&state, &id, UserCommand::message(message)).await?;
    Ok(Json(Success::REPLY))
}

/// Parses an event of V0 that a client sends as the user. V0's decisions do not name their action.
pub(crate) fn parse_command(event: Value) -> Result<UserCommand, ApiError> {
    let action_id = event
        .pointer("/args/action_id")
        .filter(|id| !id.is_null())
        .cloned();
    let change = match parse_action(event)? {
        Action::Message(message) => {
            return Ok(UserCommand::SendMessage(MessageAction {
                wait_for_response: false,
                security_risk: SecurityRisk::default(),
                ..message
            }));
        }
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

/// Applies a command of a client.
pub(crate) async fn apply(
    state: &ServerState,
    id: &ConversationId,
    command: UserCommand,
) -> Result<(), ApiError> {
    if let UserCommand::SendMessage(message) = &command {
        let images = message.image_urls.as_deref().unwrap_or_default();
        if message.content.trim().is_empty() && images.is_empty() {
            return Err(ApiError::invalid("message", "must not be empty"));
        }
        check_message("message", message)?;
    }
    state.conversations.apply(id, command).await?;
    Ok(())
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
