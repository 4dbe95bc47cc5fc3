//! `/v1/ports` and `/v1/sockets`: who listens, waiting for somebody to, and tunnels.
//!
//! A tunnel is an extended CONNECT of HTTP/2 (any `:protocol`), or an upgrade of HTTP/1.1 (any `Upgrade`).

use std::path::PathBuf;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query, Request, State};
use axum::http::request::Parts;
use axum::response::Response;
use protocol::sandbox_api::{ListeningPort, PortState};
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::Api;
use super::extract::Port;
use super::upgrade::upgraded;
use crate::api::error::ApiError;
use crate::ports::{self, Target};

/// The longest wait: a server that takes longer to start is asked for again.
const MAX_WAIT_SECONDS: f64 = 3600.0;

/// How often it is looked whether somebody listens. Reading the kernel's tables costs some 50 µs.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// `GET /v1/ports`.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/ports",
    responses((status = 200, description = "The ports that are listened on", body = Vec<ListeningPort>))
))]
pub(crate) async fn list() -> Result<Json<Vec<ListeningPort>>, ApiError> {
    tokio::task::spawn_blocking(ports::listening).await.map(Json).map_err(|_| ApiError::Failed)
}

/// `GET /v1/ports/{port}?wait=SECONDS`: whether something listens, as soon as it does or the time is over.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/ports/{port}",
    params(
        ("port" = u16, Path, description = "Its number", minimum = 1),
        ("wait" = Option<f64>, Query,
            description = "How long to wait for a listener, in seconds", minimum = 0, maximum = 3600)
    ),
    responses((status = 200, description = "Whether it is listened on", body = PortState))
))]
pub(crate) async fn look(Port(port): Port, wait: Wait) -> Json<PortState> {
    let give_up = Instant::now() + wait.0;
    loop {
        let listening = ports::is_listening(port);
        if listening || Instant::now() >= give_up {
            return Json(PortState { port, listening });
        }
        sleep(LOOK_INTERVAL).await;
    }
}

/// The `wait` of the query.
pub(crate) struct Wait(Duration);

impl FromRequestParts<Api> for Wait {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        #[derive(Deserialize)]
        struct Parameters {
            #[serde(default)]
            wait: f64,
        }
        let wrong = |problem| ApiError::Parameter { name: "wait", problem };
        let query = Query::<Parameters>::from_request_parts(parts, api).await;
        let Query(Parameters { wait }) = query.map_err(|error| wrong(error.body_text()))?;
        if !(0.0..=MAX_WAIT_SECONDS).contains(&wait) {
            return Err(wrong(format!("{wait} is not from 0 to {MAX_WAIT_SECONDS} seconds")));
        }
        Ok(Self(Duration::from_secs_f64(wait)))
    }
}

/// `CONNECT` or `GET` with an upgrade, `/v1/ports/{port}/tunnel`.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/ports/{port}/tunnel",
    params(
        ("port" = u16, Path, description = "Its number", minimum = 1),
        ("upgrade" = Option<String>, Header,
            description = "Any protocol; HTTP/2 has the extended CONNECT instead")
    ),
    responses((status = 101, description = "Bytes to and from the port"))
))]
pub(crate) async fn tunnel_to_port(
    State(api): State<Api>,
    Port(port): Port,
    request: Request,
) -> Result<Response, ApiError> {
    tunnel(&api, Target::Port(port), request).await
}

/// `CONNECT` or `GET` with an upgrade, `/v1/sockets/tunnel?path=PATH`. A relative path begins in the default session's folder.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/sockets/tunnel",
    params(
        ("path" = String, Query, description = "Of the unix socket"),
        ("upgrade" = Option<String>, Header,
            description = "Any protocol; HTTP/2 has the extended CONNECT instead")
    ),
    responses((status = 101, description = "Bytes to and from the socket"))
))]
pub(crate) async fn tunnel_to_socket(
    State(api): State<Api>,
    query: Result<Query<SocketPath>, QueryRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let Query(SocketPath { path }) =
        query.map_err(|error| ApiError::Parameter { name: "path", problem: error.body_text() })?;
    tunnel(&api, Target::Socket(api.working_dir().join(path)), request).await
}

/// The query of a tunnel to a socket.
#[derive(Deserialize)]
pub(crate) struct SocketPath {
    path: PathBuf,
}

async fn tunnel(api: &Api, target: Target, request: Request) -> Result<Response, ApiError> {
    let (upgrade, response) = upgraded(request)?;
    api.tunnels().open(target, upgrade).await?;
    Ok(response)
}
