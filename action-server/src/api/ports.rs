//! `/v1/ports` and `/v1/sockets`: lists listening ports, waits for one, and opens tunnels.
//!
//! A tunnel is an extended CONNECT of HTTP/2 (any `:protocol`), or an upgrade of HTTP/1.1 (any
//! `Upgrade`).

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
use super::extract::PortParameter;
use super::upgrade::upgrade;
use crate::api::error::ApiError;
use crate::ports::{self, TunnelTarget};

/// Maximum time to wait for a listener. A client that waits longer must retry.
const MAX_WAIT_SECONDS: f64 = 3600.0;

/// Interval at which a port is probed. Reading the kernel's tables takes about 50 µs.
const PROBE_INTERVAL: Duration = Duration::from_millis(20);

/// `GET /v1/ports`.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/ports",
    responses((status = 200, description = "The listening ports", body = Vec<ListeningPort>))
))]
pub(crate) async fn list() -> Result<Json<Vec<ListeningPort>>, ApiError> {
    tokio::task::spawn_blocking(ports::listening)
        .await
        .map(Json)
        .map_err(|_| ApiError::Failed)
}

/// `GET /v1/ports/{port}?wait=SECONDS`: whether a process listens. Responds as soon as one does, or
/// after the wait.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/ports/{port}",
    params(
        ("port" = u16, Path, description = "Number of the port", minimum = 1),
        ("wait" = Option<f64>, Query,
            description = "How long to wait for a listener, in seconds", minimum = 0, maximum = 3600)
    ),
    responses((status = 200, description = "Whether a process listens", body = PortState))
))]
pub(crate) async fn probe(
    PortParameter(port): PortParameter,
    wait: WaitParameter,
) -> Json<PortState> {
    let deadline = Instant::now() + wait.0;
    loop {
        let listening = ports::is_listening(port);
        if listening || Instant::now() >= deadline {
            return Json(PortState { port, listening });
        }
        sleep(PROBE_INTERVAL).await;
    }
}

/// The `wait` of the query.
pub(crate) struct WaitParameter(Duration);

impl FromRequestParts<Api> for WaitParameter {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        #[derive(Deserialize)]
        struct Parameters {
            #[serde(default)]
            wait: f64,
        }
        let invalid = |problem| ApiError::Parameter {
            name: "wait",
            problem,
        };
        let query = Query::<Parameters>::from_request_parts(parts, api).await;
        let Query(Parameters { wait }) = query.map_err(|error| invalid(error.body_text()))?;
        if !(0.0..=MAX_WAIT_SECONDS).contains(&wait) {
            return Err(invalid(format!(
                "{wait} is not between 0 and {MAX_WAIT_SECONDS} seconds"
            )));
        }
        Ok(Self(Duration::from_secs_f64(wait)))
    }
}

/// `CONNECT` or `GET` with an upgrade, `/v1/ports/{port}/tunnel`.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/ports/{port}/tunnel",
    params(
        ("port" = u16, Path, description = "Number of the port", minimum = 1),
        ("upgrade" = Option<String>, Header,
            description = "Any protocol; HTTP/2 has the extended CONNECT instead")
    ),
    responses((status = 101, description = "Bytes to and from the port"))
))]
pub(crate) async fn tunnel_to_port(
    State(api): State<Api>,
    PortParameter(port): PortParameter,
    request: Request,
) -> Result<Response, ApiError> {
    tunnel(&api, TunnelTarget::Port(port), request).await
}

/// `CONNECT` or `GET` with an upgrade, `/v1/sockets/tunnel?path=PATH`. A relative path refers to
/// the folder of the default session.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/sockets/tunnel",
    params(
        ("path" = String, Query, description = "Path of the unix socket"),
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
    let Query(SocketPath { path }) = query.map_err(|error| ApiError::Parameter {
        name: "path",
        problem: error.body_text(),
    })?;
    tunnel(
        &api,
        TunnelTarget::Socket(api.working_dir().join(path)),
        request,
    )
    .await
}

/// The query of a tunnel to a socket.
#[derive(Deserialize)]
pub(crate) struct SocketPath {
    path: PathBuf,
}

async fn tunnel(api: &Api, target: TunnelTarget, request: Request) -> Result<Response, ApiError> {
    let (upgrade, response) = upgrade(request)?;
    api.tunnels().open(target, upgrade).await?;
    Ok(response)
}
