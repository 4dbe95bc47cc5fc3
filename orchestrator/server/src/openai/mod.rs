//! Agents as models in OpenAI's format: `/v1/models` and `/v1/chat/completions`.
//!
//! A request is one turn of an agent. Without an id it creates a conversation; with one, its last
//! message is sent to that conversation. The text of the response is what the agent says to the
//! user until it is idle. An agent has tools of its own, so tools of the client are rejected;
//! parameters of a model, such as its temperature, are ignored.
//!
//! A client that disconnects stops the agent of a conversation that its request created. The agent
//! of a conversation that it named keeps working.

mod answer;
mod error;
mod handler;
mod request;
mod response;
mod stream;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::state::ServerState;

pub(crate) use error::{OpenAiErrorBody, to_openai_errors};
pub(crate) use handler::{__path_chat_completions, __path_models, chat_completions, models};

/// The routes below `/v1`.
pub(crate) fn router() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/models", get(models))
        .route("/chat/completions", post(chat_completions))
}
