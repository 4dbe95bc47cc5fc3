//! A server that sends scripted replies, and records the requests. Stops when it is dropped.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// The reply to a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Complete {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: String,
    },
    /// No reply until the client disconnects.
    Silence,
}

#[derive(Debug, Clone)]
pub(crate) struct RecordedRequest {
    /// Method, path and query.
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

#[derive(Debug, Default)]
struct Script {
    replies: Mutex<HashMap<String, VecDeque<Reply>>>,
    requests: Mutex<Vec<RecordedRequest>>,
    silenced: Notify,
}

pub(crate) struct Server {
    /// Without a `/` at the end.
    pub(crate) url: String,
    script: Arc<Script>,
    serving: AbortHandle,
}

impl Reply {
    pub(crate) fn json(body: &Value) -> Self {
        Self::new(200, body.to_string())
    }

    pub(crate) fn new(status: u16, body: impl Into<String>) -> Self {
        Self::Complete {
            status,
            headers: Vec::new(),
            body: body.into(),
        }
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        if let Self::Complete { headers, .. } = &mut self {
            headers.push((name, value.into()));
        }
        self
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let script = Arc::new(Script::default());
        let app = Router::new().fallback(answer).with_state(script.clone());
        let serving =
            tokio::spawn(async move { axum::serve(listener, app).await.unwrap() }).abort_handle();
        Self {
            url,
            script,
            serving,
        }
    }

    /// Adds a reply to a method, path and query. The last reply is repeated. Other requests get
    /// 404.
    pub(crate) fn on(&self, line: &str, reply: Reply) -> &Self {
        self.script
            .replies
            .lock()
            .unwrap()
            .entry(line.to_owned())
            .or_default()
            .push_back(reply);
        self
    }

    pub(crate) fn on_json(&self, line: &str, body: &Value) -> &Self {
        self.on(line, Reply::json(body))
    }

    /// Waits until a request gets no reply.
    pub(crate) async fn silenced(&self) {
        self.script.silenced.notified().await;
    }

    /// Returns the requests so far.
    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.script.requests.lock().unwrap().clone()
    }

    /// Returns the method, path and query of the requests so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.requests()
            .into_iter()
            .map(|request| request.line)
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(State(script): State<Arc<Script>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let line = format!("{} {}", head.method, head.uri);
    let body = String::from_utf8(to_bytes(body, 1 << 20).await.unwrap().into()).unwrap();
    let recorded = RecordedRequest {
        line: line.clone(),
        headers: head.headers,
        body,
    };
    script.requests.lock().unwrap().push(recorded);
    let reply = script
        .replies
        .lock()
        .unwrap()
        .get_mut(&line)
        .and_then(|replies| {
            if replies.len() > 1 {
                replies.pop_front()
            } else {
                replies.front().cloned()
            }
        });
    match reply {
        Some(Reply::Complete {
            status,
            headers,
            body,
        }) => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.body(Body::from(body)).unwrap()
        }
        Some(Reply::Silence) => {
            script.silenced.notify_one();
            std::future::pending().await
        }
        None => (
            StatusCode::NOT_FOUND,
            json!({ "message": "Not Found" }).to_string(),
        )
            .into_response(),
    }
}
