//! `/v1/processes`: start or attach, look, read, write, signal, kill, acknowledge. A reader that goes away takes nothing
//! with it, and a writer no more than the rest of what it had to say.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt as _;
use nix::sys::signal::Signal;
use protocol::ProcessId;
use protocol::sandbox_api::{ProcessInfo, ProcessRequest, SignalName, SignalRequest};
use serde::Deserialize;

use super::Api;
use super::extract::{Id, JsonBody, typed};
use super::framed::framed;
use crate::api::error::ApiError;
use crate::process::{Cursors, Process, ProcessError, frames};

/// What a reader says of itself.
#[derive(Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub(crate) struct Reading {
    /// How much of it the reader has.
    #[serde(default)]
    stdout: u64,
    /// How much of it the reader has.
    #[serde(default)]
    stderr: u64,
    /// Whether to go on until the exit. Left out, a start does and a look at the output does not.
    follow: Option<bool>,
}

/// What a writer says of itself.
#[derive(Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub(crate) struct Writing {
    /// Whether its input ends after this.
    #[serde(default)]
    close: bool,
}

type Parameters<T> = Result<Query<T>, QueryRejection>;

/// `GET /v1/processes`.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/processes",
    responses(
        (status = 200, description = "The running and the ended ones that are still held",
            body = Vec<ProcessInfo>)
    )
))]
pub(crate) async fn list(State(api): State<Api>) -> Json<Vec<ProcessInfo>> {
    Json(api.processes().list())
}

/// `POST /v1/processes/{id}`.
#[cfg_attr(test, utoipa::path(
    post,
    path = "/v1/processes/{id}",
    params(
        ("id" = ProcessId, Path, description = "Chosen by the client"),
        Reading
    ),
    request_body = ProcessRequest,
    responses(
        (status = 200, description = "Frames, until the exit",
            body = crate::openapi::Bytes, content_type = "application/vnd.glovebox.frames"),
        (status = 201, description = "With `follow=false`: it runs", body = ProcessInfo)
    )
))]
pub(crate) async fn start(
    State(api): State<Api>,
    Id(id): Id<ProcessId>,
    reading: Parameters<Reading>,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    let reading = read(reading)?;
    let request: ProcessRequest = typed(body)?;
    let process = api.processes().start(id, &request)?;
    if reading.follow == Some(false) {
        return Ok((StatusCode::CREATED, Json(process.info())).into_response());
    }
    Ok(stream(&api, process, &reading, true).await)
}

/// `GET /v1/processes/{id}`.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/processes/{id}",
    params(
        ("id" = ProcessId, Path, description = "Chosen by the client")
    ),
    responses((status = 200, description = "What is known of it", body = ProcessInfo))
))]
pub(crate) async fn info(
    State(api): State<Api>,
    Id(id): Id<ProcessId>,
) -> Result<Json<ProcessInfo>, ApiError> {
    Ok(Json(api.processes().find(id)?.info()))
}

/// `GET /v1/processes/{id}/output`.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/processes/{id}/output",
    params(
        ("id" = ProcessId, Path, description = "Chosen by the client"),
        Reading
    ),
    responses(
        (status = 200, description = "Frames",
            body = crate::openapi::Bytes, content_type = "application/vnd.glovebox.frames")
    )
))]
pub(crate) async fn output(
    State(api): State<Api>,
    Id(id): Id<ProcessId>,
    reading: Parameters<Reading>,
) -> Result<Response, ApiError> {
    let reading = read(reading)?;
    let process = api.processes().find(id)?;
    let follow = reading.follow.unwrap_or(false);
    Ok(stream(&api, process, &reading, follow).await)
}

/// `POST /v1/processes/{id}/stdin`. The body is read no faster than the process reads.
#[cfg_attr(test, utoipa::path(
    post,
    path = "/v1/processes/{id}/stdin",
    params(
        ("id" = ProcessId, Path, description = "Chosen by the client"),
        Writing
    ),
    request_body(content = crate::openapi::Bytes, content_type = "application/octet-stream"),
    responses((status = 204, description = "All is written"))
))]
pub(crate) async fn stdin(
    State(api): State<Api>,
    Id(id): Id<ProcessId>,
    writing: Parameters<Writing>,
    mut body: Body,
) -> Result<StatusCode, ApiError> {
    let Query(writing) = writing.map_err(|error| parameter("close", &error))?;
    let mut writer = api.processes().find(id)?.write_stdin().await?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::Body(error.to_string()))?;
        if let Ok(bytes) = frame.into_data() {
            writer.write(&bytes).await?;
        }
    }
    if writing.close {
        writer.close();
    }
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/processes/{id}/signal`.
#[cfg_attr(test, utoipa::path(
    post,
    path = "/v1/processes/{id}/signal",
    params(
        ("id" = ProcessId, Path, description = "Chosen by the client")
    ),
    request_body = SignalRequest,
    responses((status = 204, description = "It is sent"))
))]
pub(crate) async fn signal(
    State(api): State<Api>,
    Id(id): Id<ProcessId>,
    JsonBody(body): JsonBody,
) -> Result<StatusCode, ApiError> {
    let request: SignalRequest = typed(body)?;
    let signal = named(&request.signal).ok_or_else(|| {
        ApiError::Malformed(format!("field `signal`: there is no signal {}", request.signal))
    })?;
    api.processes().find(id)?.signal(signal, request.scope).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /v1/processes/{id}`. What has ended, held or not, is as dead as it can be.
#[cfg_attr(test, utoipa::path(
    delete,
    path = "/v1/processes/{id}",
    params(
        ("id" = ProcessId, Path, description = "Chosen by the client")
    ),
    responses((status = 204, description = "Its whole tree ends"))
))]
pub(crate) async fn kill(State(api): State<Api>, Id(id): Id<ProcessId>) -> Result<StatusCode, ApiError> {
    match api.processes().find(id) {
        Ok(process) => process.kill(),
        Err(ProcessError::Gone(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/processes/{id}/acknowledge`. Not the same as a kill, which must not throw away the exit of a process that has
/// just ended by itself.
#[cfg_attr(test, utoipa::path(
    post,
    path = "/v1/processes/{id}/acknowledge",
    params(
        ("id" = ProcessId, Path, description = "Chosen by the client")
    ),
    responses((status = 204, description = "It is forgotten"))
))]
pub(crate) async fn acknowledge(
    State(api): State<Api>,
    Id(id): Id<ProcessId>,
) -> Result<StatusCode, ApiError> {
    api.processes().acknowledge(id)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn stream(api: &Api, process: Arc<Process>, reading: &Reading, follow: bool) -> Response {
    let cursors = Cursors { stdout: reading.stdout, stderr: reading.stderr };
    let frames = frames(Arc::clone(&process), cursors, follow);
    let settled = async {
        if follow {
            process.exited_or_large().await;
        }
    };
    framed(&api.0.ticks, settled, || process.is_ready(cursors), frames).await
}

fn read(reading: Parameters<Reading>) -> Result<Reading, ApiError> {
    reading.map(|Query(reading)| reading).map_err(|error| parameter("stdout, stderr or follow", &error))
}

fn parameter(name: &'static str, error: &QueryRejection) -> ApiError {
    ApiError::Parameter { name, problem: error.body_text() }
}

fn named(name: &SignalName) -> Option<Signal> {
    match name {
        SignalName::Number(number) => Signal::try_from(*number).ok(),
        SignalName::Name(name) if name.starts_with("SIG") => name.parse().ok(),
        SignalName::Name(name) => format!("SIG{name}").parse().ok(),
    }
}
