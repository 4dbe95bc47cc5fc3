//! A model provider on loopback that sends scripted replies in order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// The reply to one call.
#[derive(Debug, Clone)]
pub enum ModelReply {
    /// A status and a body.
    Raw(u16, &'static str, String),
    /// No reply, as long as the caller waits.
    Silence,
    /// A reply after some time.
    Late(Duration, Box<Self>),
}

impl ModelReply {
    /// The model calls one tool.
    pub fn call(tool: &str, arguments: &Value) -> Self {
        let call = json!({"id": "call-1", "type": "function", "function": {"name": tool, "arguments": arguments.to_string()}});
        Self::answer(
            &json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            "tool_calls",
        )
    }

    /// The model replies with text.
    pub fn says(text: &str) -> Self {
        Self::answer(&json!({"role": "assistant", "content": text}), "stop")
    }

    fn answer(message: &Value, finish_reason: &str) -> Self {
        let body = json!({
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "test",
            "choices": [{"index": 0, "finish_reason": finish_reason, "message": message}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        });
        Self::Raw(200, "application/json", body.to_string())
    }

    /// The provider returns an error.
    pub fn error(status: u16, kind: &str, message: &str) -> Self {
        let body = json!({"error": {"type": kind, "code": kind, "message": message}});
        Self::Raw(status, "application/json", body.to_string())
    }
}

/// The server. It stops with the test's runtime.
pub struct ModelServer {
    /// For `LLM_BASE_URL`.
    pub base_url: String,
    calls: watch::Receiver<Vec<String>>,
}

struct ServerState {
    replies: Mutex<VecDeque<ModelReply>>,
    /// The model of each call.
    calls: watch::Sender<Vec<String>>,
}

impl ModelServer {
    /// Starts a server that sends these replies, then status 500 for every further call.
    pub async fn start(replies: impl IntoIterator<Item = ModelReply>) -> Self {
        let (count, calls) = watch::channel(Vec::new());
        let state = ServerState {
            replies: Mutex::new(replies.into_iter().collect()),
            calls: count,
        };
        let router = Router::new()
            .fallback(reply)
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::new(state));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { base_url, calls }
    }

    /// Returns the number of received calls.
    pub fn call_count(&self) -> usize {
        self.calls.borrow().len()
    }

    /// Returns the model of each call.
    pub fn called_models(&self) -> Vec<String> {
        self.calls.borrow().clone()
    }

    /// Waits until the server received this number of calls.
    pub async fn called(&self, times: usize) {
        let mut calls = self.calls.clone();
        let waited = tokio::time::timeout(
            super::glovebox::TEST_TIMEOUT,
            calls.wait_for(|calls| calls.len() >= times),
        );
        waited.await.expect("the model is called").unwrap();
    }
}

async fn reply(State(state): State<Arc<ServerState>>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let model = request["model"].as_str().unwrap_or_default().to_owned();
    state.calls.send_modify(|calls| calls.push(model));
    let reply = state.replies.lock().unwrap().pop_front();
    let mut reply =
        reply.unwrap_or_else(|| ModelReply::error(500, "script_ended", "no more replies"));
    if let ModelReply::Late(delay, late) = reply {
        tokio::time::sleep(delay).await;
        reply = *late;
    }
    match reply {
        ModelReply::Raw(status, kind, body) => (
            StatusCode::from_u16(status).unwrap(),
            [("content-type", kind)],
            body,
        )
            .into_response(),
        ModelReply::Late(..) => unreachable!("a reply is late once"),
        ModelReply::Silence => {
            tokio::time::sleep(Duration::from_secs(600)).await;
            StatusCode::GATEWAY_TIMEOUT.into_response()
        }
    }
}
