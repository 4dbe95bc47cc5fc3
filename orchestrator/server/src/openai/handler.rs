//! The routes.

use std::sync::Arc;
use std::time::Duration;

use accounts::Caller;
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use conversations::{ConversationRequest, Turn};
use http::{HeaderMap, HeaderValue};
use protocol::ConversationId;
use protocol::record::ConversationTrigger;

use super::answer::{Answer, AnswerPart};
use super::request::{ChatRequest, DEFAULT_MODEL, Prompt};
use super::response::{ChatCompletion, CompletionHead, ModelList};
use super::stream::AnswerStream;
use crate::audit::RequestConversation;
use crate::error::ApiError;
use crate::extract::{RequestCaller, parse_json, read_body};
use crate::other_hosts::{self, ResponseTimeout};
use crate::state::ServerState;
use crate::work::parse_body;

/// Header of the conversation, in requests and responses.
const CONVERSATION_HEADER: &str = "x-conversation-id";

/// Whether OpenAI's clients send a request again. Another turn of the agent would start.
const RETRY_HEADER: &str = "x-should-retry";

/// Maximum time of a turn. The agent continues after it.
const MAX_TURN_DURATION: Duration = Duration::from_hours(1);

/// Time beyond the maximum of a turn after which another host no longer responds.
const FORWARD_GRACE_PERIOD: Duration = Duration::from_mins(1);

/// Lists the agents as models.
#[utoipa::path(get, path = "/v1/models",
    responses((status = 200, description = "The models", body = ModelList)))]
pub(crate) async fn models(State(state): State<Arc<ServerState>>) -> Json<ModelList> {
    let agents = state
        .choices
        .agents
        .iter()
        .map(|agent| format!("{DEFAULT_MODEL}/{agent}"));
    Json(ModelList::new(
        [DEFAULT_MODEL.to_owned()].into_iter().chain(agents),
    ))
}

/// Runs an agent as a model, until it is idle.
#[utoipa::path(post, path = "/v1/chat/completions",
    params(("x-conversation-id" = Option<String>, Header, description = "The conversation, as `conversation_id` in the body")),
    request_body = ChatRequest,
    responses((status = 200, description = "The answer, or a stream of chunks",
        content((ChatCompletion = "application/json"), (String = "text/event-stream")))))]
pub(crate) async fn chat_completions(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = read_body(request).await?;
    let chat = parse_body(&state, body.clone(), parse_json).await;
    let chat: ChatRequest = chat.map_err(ApiError::without_location)?;
    let Some(id) = find_conversation(&chat, &parts.headers)? else {
        return complete(state, caller, &chat, None).await;
    };
    let request = Request::from_parts(parts, Body::from(body));
    let mut response = match forward(&state, &id, request).await {
        Some(response) => response,
        None => complete(state, caller, &chat, Some(id.clone()))
            .await
            .into_response(),
    };
    // Also of a request that is rejected.
    response.extensions_mut().insert(RequestConversation(id));
    Ok(response)
}

/// Answers a request, in the conversation that it names or in a new one.
async fn complete(
    state: Arc<ServerState>,
    caller: Caller,
    chat: &ChatRequest,
    id: Option<ConversationId>,
) -> Result<Response, ApiError> {
    if let Some(id) = &id {
        state.authorize(&caller, id).await?;
    }
    chat.check()?;
    let agent = chat.agent(&state.choices.agents)?.map(str::to_owned);
    let prompt = chat.to_prompt()?;
    let turn = open_turn(&state, &caller, id, agent, prompt).await?;
    Ok(respond(state, caller, chat, turn).await)
}

/// Forwards a request to the other host that runs its conversation. `None` if there is none.
async fn forward(
    state: &ServerState,
    id: &ConversationId,
    mut request: Request,
) -> Option<Response> {
    request
        .extensions_mut()
        .insert(ResponseTimeout(MAX_TURN_DURATION + FORWARD_GRACE_PERIOD));
    let mut response = other_hosts::forward_to_holder(state, id, request)
        .await
        .ok()?;
    if response.status().is_server_error() {
        // The message may be stored already.
        response
            .headers_mut()
            .insert(RETRY_HEADER, HeaderValue::from_static("false"));
    }
    Some(response)
}

/// Returns the conversation that a request names, in its body or its header.
fn find_conversation(
    chat: &ChatRequest,
    headers: &HeaderMap,
) -> Result<Option<ConversationId>, ApiError> {
    let header = headers
        .get(CONVERSATION_HEADER)
        .map(HeaderValue::to_str)
        .transpose();
    let header = header.map_err(|error| ApiError::invalid(CONVERSATION_HEADER, error))?;
    let parse = |field: &'static str, id: Option<&str>| {
        let id = id.map(str::parse::<ConversationId>).transpose();
        id.map_err(|error| ApiError::invalid(field, error))
    };
    let header = parse(CONVERSATION_HEADER, header)?;
    let body = parse("conversation_id", chat.conversation_id())?;
    if header.is_some() && body.is_some() && header != body {
        return Err(ApiError::invalid(
            "conversation_id",
            "is not that of the header x-conversation-id",
        ));
    }
    Ok(body.or(header))
}

async fn open_turn(
    state: &ServerState,
    caller: &Caller,
    id: Option<ConversationId>,
    agent: Option<String>,
    prompt: Prompt,
) -> Result<Turn, ApiError> {
    let Prompt {
        message,
        instructions,
    } = prompt;
    let turn = match id {
        Some(id) => {
            state
                .conversations
                .continue_turn(&id, message, MAX_TURN_DURATION)
                .await
        }
        None => {
            let request = ConversationRequest {
                owner: caller.user.clone(),
                agent,
                message: Some(message),
                instructions,
                trigger: ConversationTrigger::Api,
                ..ConversationRequest::default()
            };
            state
                .conversations
                .start_turn(request, MAX_TURN_DURATION)
                .await
        }
    };
    Ok(turn?)
}

/// Responds with the answer of a turn.
async fn respond(
    state: Arc<ServerState>,
    caller: Caller,
    chat: &ChatRequest,
    turn: Turn,
) -> Response {
    let id = turn.conversation().clone();
    let connection = state.connect(&id);
    let response_id = format!("chatcmpl-{id}-{}", accounts::unix_now_ms());
    let head = CompletionHead::new(response_id, chat.model().to_owned(), id.clone());
    let mut answer = Answer::new(state, caller, turn);
    let mut response = if chat.is_stream() {
        let includes_usage = chat.includes_usage();
        AnswerStream {
            answer,
            head,
            includes_usage,
            _connection: connection,
        }
        .into_response()
    } else {
        match read(&mut answer, head).await {
            Ok(completion) => Json(completion).into_response(),
            Err(error) => ([(RETRY_HEADER, "false")], error).into_response(),
        }
    };
    if let Ok(id) = HeaderValue::from_str(id.as_str()) {
        response.headers_mut().insert(CONVERSATION_HEADER, id);
    }
    response.extensions_mut().insert(RequestConversation(id));
    response
}

async fn read(answer: &mut Answer, head: CompletionHead) -> Result<ChatCompletion, ApiError> {
    let mut content = String::new();
    loop {
        match answer.next().await? {
            AnswerPart::Text(text) => content.push_str(&text),
            AnswerPart::End { reason, usage } => {
                return Ok(ChatCompletion::new(head, content, reason, usage));
            }
        }
    }
}
