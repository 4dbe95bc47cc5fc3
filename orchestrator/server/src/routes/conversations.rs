//! Conversations: create, list, rename, start, stop and delete.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use conversations::{ConversationEntry, ConversationFilter, ConversationRequest, ConversationsError};
use engine::replay::Trajectory;
use protocol::action::MessageAction;
use protocol::client_api::{
    ConversationInfo, ConversationPage, ConversationReply, ExperimentConfig, NewConversation,
    StartConversation, TitleChange,
};
use protocol::record::FeedbackGiven;
use protocol::{ConversationId, Event, UserId};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::audit::Created;
use crate::error::ApiError;
use crate::extract::{ConversationPath, JsonBody, QueryParameters, RequestCaller};
use crate::state::ServerState;
use crate::view;

/// Maximum number of conversations of a page.
const MAX_PAGE_SIZE: usize = 100;

/// Maximum length of the version and of the address of feedback, in bytes.
const MAX_FEEDBACK_TEXT: usize = 256;

/// Maximum length of a title, in bytes.
const MAX_TITLE_LENGTH: usize = 1024;

#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct ListQuery {
    page_id: Option<String>,
    limit: usize,
    selected_repository: Option<String>,
    conversation_trigger: Option<String>,
}

impl Default for ListQuery {
    fn default() -> Self {
        Self { page_id: None, limit: 20, selected_repository: None, conversation_trigger: None }
    }
}

pub(super) async fn create(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    JsonBody(request): JsonBody<NewConversation>,
) -> Result<(Extension<Created>, Json<ConversationReply>), ApiError> {
    let request = to_request(request, caller.user)?;
    let id = state.conversations.create(request).await?;
    let status = view::conversation_state(&state, &id);
    Ok((Extension(Created(id.clone())), Json(ConversationReply::new(id, status))))
}

/// Checks a request for a new conversation. Fields that are not supported are rejected rather than ignored.
fn to_request(request: NewConversation, owner: Option<UserId>) -> Result<ConversationRequest, ApiError> {
    let unsupported = [
        ("suggested_task", request.suggested_task),
        ("create_microagent", request.create_microagent),
        ("mcp_config", request.mcp_config),
    ];
    if let Some((field, _)) = unsupported.into_iter().find(|(_, value)| value.is_some()) {
        return Err(ApiError::invalid(field, "is not supported by this server"));
    }
    let image_urls = request.image_urls.filter(|urls| !urls.is_empty());
    let content = request.initial_user_msg.filter(|text| !text.trim().is_empty());
    if content.is_none() && image_urls.is_some() {
        return Err(ApiError::invalid("image_urls", "need an initial_user_msg"));
    }
    let trajectory = request.replay_json.filter(|text| !text.trim().is_empty());
    let events = trajectory.map(|text| serde_json::from_str::<Vec<Event>>(&text)).transpose();
    let events = events.map_err(|error| ApiError::invalid("replay_json", error))?;
    let trajectory = events.map(|events| Trajectory::new(&events));
    if trajectory.is_some() && content.is_some() {
        return Err(ApiError::invalid("initial_user_msg", "the trajectory in replay_json has the messages"));
    }
    Ok(ConversationRequest {
        owner,
        message: content.map(|content| MessageAction { content, image_urls, ..Default::default() }),
        instructions: request.conversation_instructions,
        repository: request.repository.filter(|name| !name.is_empty()),
        branch: request.selected_branch,
        trajectory,
    })
}

/// Lists the conversations of a user, or all for the operator.
pub(super) async fn list(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    QueryParameters(query): QueryParameters<ListQuery>,
) -> Result<Json<ConversationPage>, ApiError> {
    if !(1..=MAX_PAGE_SIZE).contains(&query.limit) {
        return Err(ApiError::invalid("limit", format_args!("must be 1 to {MAX_PAGE_SIZE}")));
    }
    // No conversation of this server has another trigger.
    if query.conversation_trigger.is_some_and(|trigger| trigger != view::TRIGGER) {
        return Ok(Json(ConversationPage { results: Vec::new(), next_page_id: None }));
    }
    let before = query.page_id.as_deref().map(str::parse).transpose();
    let filter = ConversationFilter {
        repository: query.selected_repository,
        owner: caller.user,
        before: before.map_err(|error| ApiError::invalid("page_id", error))?,
        limit: Some(query.limit + 1),
        ..ConversationFilter::default()
    };
    let mut entries = state.conversations.conversations().list(&filter).await?;
    let has_more = entries.len() > query.limit;
    entries.truncate(query.limit);
    let last = entries.last().and_then(ConversationEntry::position).filter(|_| has_more);
    let results = entries.iter().filter_map(|entry| view::conversation_info(&state, entry)).collect();
    Ok(Json(ConversationPage { results, next_page_id: last.map(|position| position.to_string()) }))
}

pub(super) async fn find(
    State(state): State<Arc<ServerState>>,
    path: Result<ConversationPath, ApiError>,
) -> Result<Json<Option<ConversationInfo>>, ApiError> {
    let Some(id) = known(path)? else { return Ok(Json(None)) };
    let entry = state.conversations.conversations().entry(&id).await?;
    Ok(Json(entry.and_then(|entry| view::conversation_info(&state, &entry))))
}

/// Returns the conversation of a path. `None` if the caller can see none of this id.
fn known(path: Result<ConversationPath, ApiError>) -> Result<Option<ConversationId>, ApiError> {
    match path {
        Ok(ConversationPath(id)) => Ok(Some(id)),
        Err(ApiError::Conversations(ConversationsError::Unknown(_))) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) async fn rename(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    JsonBody(TitleChange { title }): JsonBody<TitleChange>,
) -> Result<Json<bool>, ApiError> {
    if title.trim().is_empty() || title.len() > MAX_TITLE_LENGTH {
        return Err(ApiError::invalid("title", format_args!("must have 1 to {MAX_TITLE_LENGTH} bytes")));
    }
    state.conversations.set_title(&id, &title).await?;
    Ok(Json(true))
}

pub(super) async fn delete(
    State(state): State<Arc<ServerState>>,
    path: Result<ConversationPath, ApiError>,
) -> Result<Json<bool>, ApiError> {
    let Some(id) = known(path)? else { return Ok(Json(false)) };
    match state.conversations.delete(&id).await {
        Ok(()) => Ok(Json(true)),
        Err(ConversationsError::Unknown(_)) => Ok(Json(false)),
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn start(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    JsonBody(_): JsonBody<StartConversation>,
) -> Result<Json<ConversationReply>, ApiError> {
    state.conversations.start(&id).await?;
    let status = view::conversation_state(&state, &id);
    Ok(Json(ConversationReply::new(id, status)))
}

pub(super) async fn stop(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
) -> Result<Json<ConversationReply>, ApiError> {
    state.conversations.stop(&id).await?;
    let status = view::conversation_state(&state, &id);
    Ok(Json(ConversationReply::new(id, status)))
}

pub(super) async fn config(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
) -> Result<Json<Value>, ApiError> {
    state.conversations.conversations().event_count(&id).await?;
    let running = state.conversations.state(&id);
    let lease = running.as_ref().and_then(|running| running.lease.as_ref());
    let sandbox = lease.map(|lease| lease.sandbox_id.to_string());
    Ok(Json(json!({"runtime_id": sandbox, "session_id": id})))
}

/// V0 stores the settings of its experiments here. This server takes part in none, and reports that it stored nothing.
pub(super) async fn experiment_config(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    JsonBody(_): JsonBody<ExperimentConfig>,
) -> Result<Json<bool>, ApiError> {
    state.conversations.conversations().event_count(&id).await?;
    Ok(Json(false))
}

/// Records feedback in the log of the conversation. V0 sends it with the whole conversation to a service of its developers;
/// this server sends it to no one.
pub(super) async fn submit_feedback(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    JsonBody(feedback): JsonBody<FeedbackGiven>,
) -> Result<Json<FeedbackGiven>, ApiError> {
    for (field, text) in [("version", &feedback.version), ("email", &feedback.email)] {
        if text.len() > MAX_FEEDBACK_TEXT {
            return Err(ApiError::invalid(
                field,
                format_args!("must have at most {MAX_FEEDBACK_TEXT} bytes"),
            ));
        }
    }
    state.conversations.record_feedback(&id, feedback.clone()).await?;
    Ok(Json(feedback))
}
