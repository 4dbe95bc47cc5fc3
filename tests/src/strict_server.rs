//! The HTTP server of a strict provider of models, whose model writes scripted responses.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use engine::llm::AssistantMessage;
use llm::testing::StrictProvider;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// The server, in a thread of its own. It stops with the process of the test.
pub struct StrictServer {
    /// The name of the model.
    pub model: &'static str,
    /// For `LLM_BASE_URL`.
    pub base_url: String,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    provider: StrictProvider,
    script: VecDeque<AssistantMessage>,
}

impl StrictServer {
    /// Starts the server of a provider.
    pub fn start(provider: StrictProvider) -> Self {
        let model = provider.model();
        let shared = Arc::new(Mutex::new(Shared {
            provider,
            script: VecDeque::new(),
        }));
        let (send, address) = mpsc::channel();
        let router = Router::new()
            .fallback(reply)
            .with_state(Arc::clone(&shared));
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                send.send(listener.local_addr().unwrap()).unwrap();
                axum::serve(listener, router).await.unwrap();
            });
        });
        Self {
            model,
            base_url: format!("http://{}", address.recv().unwrap()),
            shared,
        }
    }

    /// Sets the next responses, in the format of scripts.
    pub fn set_script(&self, responses: &Value) {
        let message = |response: &Value| {
            // Some servers give all calls the same id.
            let call = |call: &Value| {
                let arguments = call["arguments"].to_string();
                json!({"id": "call_1", "function": {"name": call["name"], "arguments": arguments}})
            };
            let calls: Vec<Value> = response["tool_calls"]
                .as_array()
                .into_iter()
                .flatten()
                .map(call)
                .collect();
            AssistantMessage::from_stored(json!({"content": response["text"], "tool_calls": calls}))
        };
        self.shared.lock().unwrap().script =
            responses.as_array().unwrap().iter().map(message).collect();
    }
}

async fn reply(State(shared): State<Arc<Mutex<Shared>>>, body: Bytes) -> Response {
    let Shared { provider, script } = &mut *shared.lock().unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let is_title = body["tools"].is_null();
    let message = if is_title {
        AssistantMessage {
            text: "A title".into(),
            ..Default::default()
        }
    } else {
        script
            .pop_front()
            .expect("the script has no more responses")
    };
    let (status, body) = match provider.answer(&body, &message) {
        Ok(response) => (StatusCode::OK, response),
        Err(refusal) => (
            StatusCode::BAD_REQUEST,
            json!({"error": {"type": "error", "message": refusal}}),
        ),
    };
    (
        status,
        [("content-type", "application/json")],
        body.to_string(),
    )
        .into_response()
}
