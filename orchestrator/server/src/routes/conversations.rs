//! Conversations: create, list, rename, start, stop and delete.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::{Extension, Json};
use conversations::{
    ConversationEntry, ConversationFilter, ConversationRequest, ConversationsError, check_message,
    check_text, check_title, task_prompt,
};
use engine::replay::Trajectory;
use http::header;
use protocol::action::MessageAction;
use protocol::client_api::git::GitProvider;
use protocol::client_api::{
    ConversationConfig, ConversationInfo, ConversationPage, ConversationReply, ExperimentConfig,
    FeedbackReply, NewConversation, StartConversation, TitleChange,
};
use protocol::record::{ConversationTrigger, FeedbackGiven};
use protocol::{ConversationId, Event, UserCommand, UserId};
use serde::Deserialize;
use tokio::time::timeout;
use utoipa::IntoParams;

use super::files::workspace;
use crate::audit::RequestConversation;
use crate::error::ApiError;
use crate::extract::{
    ConversationPath, JsonBody, QueryParameters, RequestCaller, parse_json, read_body,
};
use crate::json_values::check_count;
use crate::state::ServerState;
use crate::view;
use crate::work::{WorkPermit, parse_body};

/// Time to read a branch. A sandbox that does not respond must not delay the response.
const BRANCH_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of conversations of a page.
const MAX_PAGE_SIZE: usize = 100;

/// Maximum number of values of a trajectory. An event has about 20.
const MAX_TRAJECTORY_VALUES: usize = 500_000;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub(crate) struct ListQuery {
    /// The `next_page_id` of the page before.
    pub(crate) page_id: Option<String>,
    /// Maximum number of conversations.
    #[param(minimum = 1, maximum = 100, default = 20)]
    pub(crate) limit: usize,
    /// The full name of the repository, or a part of its URL.
    pub(crate) selected_repository: Option<String>,
    /// What created the conversation.
    pub(crate) conversation_trigger: Option<ConversationTrigger>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct MicroagentListQuery {
    /// The full name of the repository, or its URL.
    selected_repository: String,
    /// Maximum number of conversations.
    #[param(minimum = 1, maximum = 100, default = 20)]
    limit: Option<usize>,
    /// The `next_page_id` of the page before.
    page_id: Option<String>,
}

impl Default for ListQuery {
    fn default() -> Self {
        Self {
            page_id: None,
            limit: 20,
            selected_repository: None,
            conversation_trigger: None,
        }
    }
}

/// Starts a conversation.
#[utoipa::path(post, path = "/api/conversations",
    request_body = NewConversation,
    responses((status = 200, description = "It runs", body = ConversationReply)))]
pub(super) async fn create(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    request: Request,
) -> Result<(Extension<RequestConversation>, Json<ConversationReply>), ApiError> {
    let (parts, body) = read_body(request).await?;
    // V0's page sends its key in another header.
    let is_api = parts.headers.contains_key(header::AUTHORIZATION);
    let trigger = if is_api {
        ConversationTrigger::Api
    } else {
        ConversationTrigger::Gui
    };
    let parse = move |body: &[u8]| to_request(parse_json(body)?, caller.user, trigger);
    let request = parse_body(&state, body, parse).await?;
    let id = state.conversations.create(request).await?;
    let status = view::conversation_state(&state, &id);
    Ok((
        Extension(RequestConversation(id.clone())),
        Json(ConversationReply::new(id, status)),
    ))
}

/// Checks a request for a new conversation. Fields that are not supported are rejected rather than
/// ignored. `trigger` is what creates it, unless the request says more.
fn to_request(
    request: NewConversation,
    owner: Option<UserId>,
    trigger: ConversationTrigger,
) -> Result<ConversationRequest, ApiError> {
    if request.mcp_config.is_some() {
        return Err(ApiError::invalid(
            "mcp_config",
            "is not supported by this server",
        ));
    }
    let NewConversation {
        suggested_task,
        create_microagent,
        ..
    } = request;
    if suggested_task.is_some() && create_microagent.is_some() {
        return Err(ApiError::invalid(
            "create_microagent",
            "excludes a suggested_task",
        ));
    }
    let image_urls = request.image_urls.filter(|urls| !urls.is_empty());
    let message = request
        .initial_user_msg
        .filter(|text| !text.trim().is_empty());
    if message.is_none() && suggested_task.is_none() && image_urls.is_some() {
        return Err(ApiError::invalid("image_urls", "need an initial_user_msg"));
    }
    let prompt = suggested_task.as_ref().map(task_prompt);
    let content: Vec<_> = prompt.into_iter().chain(message).collect();
    let content = Some(content.join("\n\n")).filter(|content| !content.is_empty());
    let trajectory = request.replay_json.filter(|text| !text.trim().is_empty());
    if let Some(text) = &trajectory {
        check_count("replay_json", text.as_bytes(), MAX_TRAJECTORY_VALUES)?;
    }
    let events = trajectory
        .map(|text| serde_json::from_str::<Vec<Event>>(&text))
        .transpose();
    let events = events.map_err(|error| ApiError::invalid("replay_json", error))?;
    let trajectory = events.map(|events| Trajectory::new(&events));
    if trajectory.is_some() && content.is_some() {
        return Err(ApiError::invalid(
            "replay_json",
            "has the messages, and excludes others",
        ));
    }
    let message = content.map(|content| MessageAction {
        content,
        image_urls,
        ..Default::default()
    });
    if let Some(message) = &message {
        check_message("initial_user_msg", message)?;
    }
    check_text(
        "conversation_instructions",
        request
            .conversation_instructions
            .as_deref()
            .unwrap_or_default(),
    )?;
    let mut new = ConversationRequest {
        id: None,
        owner,
        agent: None,
        model: None,
        message,
        instructions: request.conversation_instructions,
        repository: request.repository.filter(|name| !name.is_empty()),
        git_provider: request.git_provider,
        branch: request.selected_branch.filter(|name| !name.is_empty()),
        trajectory,
        title: None,
        trigger,
    };
    if let Some(task) = suggested_task {
        new.trigger = ConversationTrigger::SuggestedTask;
        // Work items of Azure DevOps belong to a project, not to a repository.
        let has_repository =
            task.git_provider != GitProvider::AzureDevOps || task.repo.split('/').count() == 3;
        set_repository(
            &mut new,
            Some(task.repo).filter(|_| has_repository),
            Some(task.git_provider),
        );
    }
    if let Some(microagent) = create_microagent {
        new.trigger = ConversationTrigger::MicroagentManagement;
        let title = microagent.title.filter(|title| !title.trim().is_empty());
        check_title(
            "create_microagent.title",
            title.as_deref().unwrap_or_default(),
        )?;
        new.title = title;
        set_repository(&mut new, Some(microagent.repo), microagent.git_provider);
    }
    Ok(new)
}

/// Sets the repository of a task, unless the request names another.
fn set_repository(
    request: &mut ConversationRequest,
    repository: Option<String>,
    provider: Option<GitProvider>,
) {
    if request.repository.is_none() && repository.is_some() {
        request.repository = repository;
        request.git_provider = provider.or(request.git_provider);
    }
}

/// Lists the conversations of a user, or all for the operator, the latest first.
#[utoipa::path(get, path = "/api/conversations",
    params(ListQuery),
    responses((status = 200, description = "A page", body = ConversationPage)))]
pub(super) async fn list(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    QueryParameters(query): QueryParameters<ListQuery>,
) -> Result<Json<ConversationPage>, ApiError> {
    page(&state, caller.user, query).await.map(Json)
}

/// Lists the conversations that write microagents for a repository, the latest first.
#[utoipa::path(get, path = "/api/microagent-management/conversations",
    params(MicroagentListQuery),
    responses((status = 200, description = "A page", body = ConversationPage)))]
pub(super) async fn list_of_microagents(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    QueryParameters(query): QueryParameters<MicroagentListQuery>,
) -> Result<Json<ConversationPage>, ApiError> {
    let MicroagentListQuery {
        selected_repository: repository,
        limit,
        page_id,
    } = query;
    let all = ListQuery::default();
    let query = ListQuery {
        page_id,
        // V0's page asks for a thousand.
        limit: limit.unwrap_or(all.limit).min(MAX_PAGE_SIZE),
        selected_repository: Some(repository.clone()),
        conversation_trigger: Some(ConversationTrigger::MicroagentManagement),
    };
    let is_of_repository = |entry: &ConversationEntry| {
        view::repository_url(entry) == Some(repository.as_str())
            || view::repository(entry).as_ref() == Some(&repository)
    };
    selected_page(&state, caller.user, query, is_of_repository)
        .await
        .map(Json)
}

/// Returns a page of the conversations of a user. `None` for the operator, who sees all.
pub(crate) async fn page(
    state: &ServerState,
    owner: Option<UserId>,
    query: ListQuery,
) -> Result<ConversationPage, ApiError> {
    selected_page(state, owner, query, |_| true).await
}

/// Like [`page`], of the conversations that the predicate selects.
async fn selected_page(
    state: &ServerState,
    owner: Option<UserId>,
    mut query: ListQuery,
    predicate: impl Fn(&ConversationEntry) -> bool,
) -> Result<ConversationPage, ApiError> {
    // As in V0, an empty filter is none.
    query.page_id.take_if(|id| id.is_empty());
    query.selected_repository.take_if(|name| name.is_empty());
    if !(1..=MAX_PAGE_SIZE).contains(&query.limit) {
        return Err(ApiError::invalid(
            "limit",
            format_args!("must be 1 to {MAX_PAGE_SIZE}"),
        ));
    }
    let before = query.page_id.as_deref().map(str::parse).transpose();
    let filter = ConversationFilter {
        repository: query.selected_repository.as_deref().map(url_part),
        trigger: query.conversation_trigger,
        owner,
        before: before.map_err(|error| ApiError::invalid("page_id", error))?,
        limit: Some(query.limit + 1),
        ..ConversationFilter::default()
    };
    let repository = query.selected_repository.as_ref();
    let is_selected = |entry: &ConversationEntry| {
        predicate(entry) && repository.is_none_or(|repository| has_repository(entry, repository))
    };
    let mut selected = select(state, filter, is_selected).await?;
    let has_more = selected.len() > query.limit;
    selected.truncate(query.limit);
    let last = selected
        .last()
        .and_then(ConversationEntry::position)
        .filter(|_| has_more);
    let results = selected
        .iter()
        .filter_map(|entry| view::conversation_info(state, entry))
        .collect();
    Ok(ConversationPage {
        results,
        next_page_id: last.map(|position| position.to_string()),
    })
}

/// Returns a part of the URL of every repository that a text names. At Azure DevOps, a URL does not
/// contain the full name, and has no spaces.
fn url_part(repository: &str) -> String {
    let name = repository.rsplit('/').next().unwrap_or_default();
    name.split(' ').next().unwrap_or_default().to_owned()
}

/// Whether a text is the full name of a conversation's repository, or a part of its URL.
fn has_repository(entry: &ConversationEntry, text: &str) -> bool {
    view::repository_url(entry).is_some_and(|url| url.contains(text))
        || view::repository(entry).is_some_and(|name| name == text)
}

/// Lists the conversations that the filter and the predicate select. Reads no logs.
async fn select(
    state: &ServerState,
    mut filter: ConversationFilter,
    is_selected: impl Fn(&ConversationEntry) -> bool,
) -> Result<Vec<ConversationEntry>, ApiError> {
    let conversations = state.conversations.conversations();
    let (limit, mut selected) = (filter.limit.unwrap_or(MAX_PAGE_SIZE), Vec::new());
    loop {
        let entries = conversations.list(&filter).await?;
        let is_last = entries.len() < limit;
        filter.before = entries.last().and_then(ConversationEntry::position);
        selected.extend(entries.into_iter().filter(&is_selected));
        if is_last || selected.len() >= limit || filter.before.is_none() {
            selected.truncate(limit);
            return Ok(selected);
        }
    }
}

/// Returns a conversation. `null` if there is none.
#[utoipa::path(get, path = "/api/conversations/{id}",
    params(("id" = ConversationId, Path, description = "The conversation")),
    responses((status = 200, description = "The conversation", body = Option<ConversationInfo>)))]
pub(super) async fn find(
    State(state): State<Arc<ServerState>>,
    path: Result<ConversationPath, ApiError>,
) -> Result<Json<Option<ConversationInfo>>, ApiError> {
    let Some(id) = known(path)? else {
        return Ok(Json(None));
    };
    let conversations = state.conversations.conversations();
    let Some(entry) = conversations.entry(&id).await? else {
        return Ok(Json(None));
    };
    let mut info = view::conversation_info(&state, &entry);
    if let Some(info) = info
        .as_mut()
        .filter(|info| info.selected_repository.is_some() && info.runtime_status.is_some())
        && let Some(branch) = current_branch(&state, &id).await
    {
        info.selected_branch = Some(branch);
    }
    Ok(Json(info))
}

/// Returns the branch that the agent has checked out, which V0's page shows. `None` if it cannot be
/// read.
async fn current_branch(state: &ServerState, id: &ConversationId) -> Option<String> {
    let read = async { workspace(state, id).await.ok()?.branch().await.ok()? };
    timeout(BRANCH_TIMEOUT, read).await.ok()?
}

/// Returns the conversation of a path. `None` if the caller can see none of this id.
fn known(path: Result<ConversationPath, ApiError>) -> Result<Option<ConversationId>, ApiError> {
    match path {
        Ok(ConversationPath(id)) => Ok(Some(id)),
        Err(ApiError::Conversations(ConversationsError::Unknown(_))) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sets the title.
#[utoipa::path(patch, path = "/api/conversations/{id}",
    params(("id" = ConversationId, Path, description = "The conversation")),
    request_body = TitleChange,
    responses((status = 200, description = "It is stored", body = bool, content_type = "application/json")))]
pub(super) async fn rename(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    JsonBody(TitleChange { title }): JsonBody<TitleChange>,
) -> Result<Json<bool>, ApiError> {
    let command = UserCommand::SetTitle { title };
    state.conversations.apply(&id, command).await?;
    Ok(Json(true))
}

/// Deletes a conversation with its sandbox and workspace. `false` if there is none.
#[utoipa::path(delete, path = "/api/conversations/{id}",
    params(("id" = ConversationId, Path, description = "The conversation")),
    responses((status = 200, description = "Whether it is deleted", body = bool, content_type = "application/json")))]
pub(super) async fn delete(
    State(state): State<Arc<ServerState>>,
    path: Result<ConversationPath, ApiError>,
    RequestCaller(caller): RequestCaller,
) -> Result<Json<bool>, ApiError> {
    let Some(id) = known(path)? else {
        return Ok(Json(false));
    };
    let permit = WorkPermit::for_deletion(&state, &caller).await;
    let deleting = async move {
        match state.conversations.delete(&id).await {
            Ok(()) => Ok(Json(true)),
            Err(ConversationsError::Unknown(_)) => Ok(Json(false)),
            Err(error) => Err(error.into()),
        }
    };
    permit.run(deleting).await
}

/// Runs a stored conversation.
#[utoipa::path(post, path = "/api/conversations/{id}/start",
    params(("id" = ConversationId, Path, description = "The conversation")),
    request_body = StartConversation,
    responses((status = 200, description = "It runs", body = ConversationReply)))]
pub(super) async fn start(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    JsonBody(_): JsonBody<StartConversation>,
) -> Result<Json<ConversationReply>, ApiError> {
    let command = UserCommand::AwaitMessage;
    state.conversations.apply(&id, command).await?;
    let status = view::conversation_state(&state, &id);
    Ok(Json(ConversationReply::new(id, status)))
}

/// Stops the agent, closes the conversation, and disconnects its sockets.
#[utoipa::path(post, path = "/api/conversations/{id}/stop",
    params(("id" = ConversationId, Path, description = "The conversation")),
    responses((status = 200, description = "It is closed", body = ConversationReply)))]
pub(super) async fn stop(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
) -> Result<Json<ConversationReply>, ApiError> {
    state.conversations.stop(&id).await?;
    state.disconnect_sockets(&id);
    let status = view::conversation_state(&state, &id);
    Ok(Json(ConversationReply::new(id, status)))
}

/// Returns the ids of the conversation and of its sandbox.
#[utoipa::path(get, path = "/api/conversations/{id}/config",
    params(("id" = ConversationId, Path, description = "The conversation")),
    responses((status = 200, description = "The ids", body = ConversationConfig)))]
pub(super) async fn config(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
) -> Result<Json<ConversationConfig>, ApiError> {
    state.conversations.conversations().event_count(&id).await?;
    let running = state.conversations.state(&id);
    let lease = running.as_ref().and_then(|running| running.lease.as_ref());
    let sandbox = lease.map(|lease| lease.sandbox_id.to_string());
    Ok(Json(ConversationConfig {
        runtime_id: sandbox,
        session_id: id,
    }))
}

/// V0 stores the settings of its experiments here. This server takes part in none, and reports that
/// it stored nothing.
#[utoipa::path(post, path = "/api/conversations/{id}/exp-config",
    params(("id" = ConversationId, Path, description = "The conversation")),
    request_body = ExperimentConfig,
    responses((status = 200, description = "Always `false`", body = bool, content_type = "application/json")))]
pub(super) async fn experiment_config(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    JsonBody(_): JsonBody<ExperimentConfig>,
) -> Result<Json<bool>, ApiError> {
    state.conversations.conversations().event_count(&id).await?;
    Ok(Json(false))
}

/// V0 forwards these requests to an analyzer that has routes. Here none has.
pub(super) async fn security(_: ConversationPath) -> ApiError {
    ApiError::NoAnalyzerRoutes
}

/// Records feedback in the log of the conversation. V0 sends it with the whole conversation to a
/// service of its developers; this server sends it to no one.
#[utoipa::path(post, path = "/api/conversations/{id}/submit-feedback",
    params(("id" = ConversationId, Path, description = "The conversation")),
    request_body = FeedbackGiven,
    responses((status = 200, description = "The stored feedback", body = FeedbackReply)))]
pub(super) async fn submit_feedback(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    JsonBody(feedback): JsonBody<FeedbackGiven>,
) -> Result<Json<FeedbackReply>, ApiError> {
    let command = UserCommand::GiveFeedback(feedback.clone());
    state.conversations.apply(&id, command).await?;
    Ok(Json(FeedbackReply::new(feedback)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_a_named_repository_contain_its_part() {
        for (text, url) in [
            ("acme/app", "https://github.com/acme/app.git"),
            ("github.com/acme", "https://github.com/acme/app.git"),
            ("acme/", "https://github.com/acme/app.git"),
            (
                "acme/my project/my app",
                "https://dev.azure.com/acme/my%20project/_git/my%20app",
            ),
        ] {
            assert!(url.contains(&url_part(text)), "{text}");
        }
    }
}
