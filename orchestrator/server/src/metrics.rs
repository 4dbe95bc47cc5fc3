//! Measurements of the server. What collects and writes them is the composition root's choice.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use accounts::Credential;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderValue, header};
use tokio::time::Instant;

use crate::client_address::Client;
use crate::error::ApiError;
use crate::state::ServerState;
use crate::{auth, origin, socket_io};

/// The text format of OpenMetrics, which Prometheus reads.
const CONTENT_TYPE: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// Receives measurements of the server, and writes them together with those of other parts.
pub trait ServerMetrics: fmt::Debug + Send + Sync {
    /// Records a request.
    fn record_request(&self, request: &ServedRequest<'_>);

    /// Writes all metrics in the text format of OpenMetrics. `None` if they cannot be written.
    fn render(&self, usage: &ServerUsage) -> Option<String>;
}

/// A request to which the response has started.
#[derive(Debug)]
pub struct ServedRequest<'a> {
    /// The method, which may be any word.
    pub method: &'a str,
    /// The route with the names of its parameters; one of a bounded number.
    pub route: &'a str,
    /// The status code.
    pub status: u16,
    /// From the head of the request to that of the response.
    pub duration: Duration,
}

/// What the server does at the moment.
#[derive(Debug, Default)]
pub struct ServerUsage {
    /// Number of open streams and sockets of events.
    pub open_streams: usize,
    /// Number of conversations that run in this process, by the name of their agent's state. Only
    /// states that occur.
    pub agent_states: BTreeMap<&'static str, usize>,
}

/// Records a request and the time until its response starts.
pub(crate) async fn record(
    State(state): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Response {
    let (started, method) = (Instant::now(), request.method().clone());
    let route = route(&state, &request).into_owned();
    let response = next.run(request).await;
    state.metrics.record_request(&ServedRequest {
        method: method.as_str(),
        route: &route,
        status: response.status().as_u16(),
        duration: started.elapsed(),
    });
    response
}

/// Returns the route of a request. A path without one is not named, because clients choose it.
fn route<'a>(state: &ServerState, request: &'a Request) -> Cow<'a, str> {
    let host = origin::host(request.uri(), request.headers());
    if host.is_some_and(|host| state.port_hosts.find(&host).is_some()) {
        return Cow::Borrowed("port of a sandbox");
    }
    if request.uri().path().starts_with(socket_io::PATH) {
        return Cow::Borrowed(socket_io::PATH);
    }
    match request.extensions().get::<MatchedPath>() {
        Some(path) => Cow::Borrowed(path.as_str()),
        None => Cow::Borrowed("none"),
    }
}

/// Returns the metrics of the server, for the operator's key only.
#[utoipa::path(get, path = "/metrics", security(("key" = []), ("bearer" = [])), responses((status = 200,
    description = "The metrics", body = String, content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8")))]
pub(crate) async fn metrics(
    State(state): State<Arc<ServerState>>,
    client: Option<axum::Extension<Client>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let key = auth::key_in(&headers).ok_or(ApiError::NoKey)?;
    let caller = auth::check_key(&state, client.map(|client| client.0), key).await?;
    if caller.credential != Credential::Operator {
        return Err(ApiError::NotOperator);
    }
    let conversations = state.conversations.conversations();
    let mut usage = ServerUsage {
        open_streams: state.stream_count(),
        ..ServerUsage::default()
    };
    for running in conversations
        .running()
        .iter()
        .filter_map(|id| state.conversations.state(id))
    {
        *usage
            .agent_states
            .entry(running.agent_state.as_str())
            .or_default() += 1;
    }
    let text = state.metrics.render(&usage).ok_or(ApiError::Metrics)?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}
