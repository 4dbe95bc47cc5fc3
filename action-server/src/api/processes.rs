//! `/v1/processes`: start or attach, inspect, read, write, signal, kill, acknowledge. A lost
//! connection does not affect the process, except that the rest of its request body is not written.

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
use super::extract::{IdParameter, JsonBody, deserialize};
use super::framed_response::framed_response;
use crate::api::error::ApiError;
use crate::process::{Cursors, Process, ProcessError, frames};

/// Parameters of a reader.
#[derive(Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub(crate) struct ReadQuery {
    /// How many bytes of stdout the reader has.
    #[serde(default)]
    stdout: u64,
    /// How many bytes of stderr the reader has.
    #[serde(default)]
    stderr: u64,
    /// Whether to stream until the exit. The default is true for a start, and false for a read.
    follow: Option<bool>,
}

/// Parameters of a writer.
#[derive(Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub(crate) struct WriteQuery {
    /// Whether to close the input after this request.
    #[serde(default)]
    close: bool,
}

type QueryResult<T> = Result<Query<T>, QueryRejection>;

/// `GET /v1/processes`.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/processes",
    responses(
        (status = 200, description = "Running processes, and exited ones that are retained",
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
        ReadQuery
    ),
    request_body = ProcessRequest,
    responses(
        (status = 200, description = "Frames, until the exit",
            body = crate::openapi::Bytes, content_type = "application/vnd.glovebox.frames"),
        (status = 201, description = "With `follow=false`: it was started", body = ProcessInfo)
    )
))]
pub(crate) async fn start(
    State(api): State<Api>,
    IdParameter(id): IdParameter<ProcessId>,
    query: QueryResult<ReadQuery>,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    let query = parse(query)?;
    let request: ProcessRequest = deserialize(body)?;
    let process = api.processes().start(id, &request)?;
    if query.follow == Some(false) {
        // The client may follow it in another request.
        process.expect_reader();
        return Ok((StatusCode::CREATED, Json(process.info())).into_response());
    }
    Ok(stream(&api, process, &query, true).await)
}

/// `GET /v1/processes/{id}`.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/processes/{id}",
    params(
        ("id" = ProcessId, Path, description = "Chosen by the client")
    ),
    responses((status = 200, description = "State of the process", body = ProcessInfo))
))]
pub(crate) async fn info(
    State(api): State<Api>,
    IdParameter(id): IdParameter<ProcessId>,
) -> Result<Json<ProcessInfo>, ApiError> {
    Ok(Json(api.processes().find(id)?.info()))
}

/// `GET /v1/processes/{id}/output`.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/processes/{id}/output",
    params(
        ("id" = ProcessId, Path, description = "Chosen by the client"),
        ReadQuery
    ),
    responses(
        (status = 200, description = "Frames",
            body = crate::openapi::Bytes, content_type = "application/vnd.glovebox.frames")
    )
))]
pub(crate) async fn output(
    State(api): State<Api>,
    IdParameter(id): IdParameter<ProcessId>,
    query: QueryResult<ReadQuery>,
) -> Result<Response, ApiError> {
    let query = parse(query)?;
    let process = api.processes().find(id)?;
    let follow = query.follow.unwrap_or(false);
    Ok(stream(&api, process, &query, follow).await)
}

/// `POST /v1/processes/{id}/stdin`. The body is read at the pace of the process.
#[cfg_attr(test, utoipa::path(
    post,
    path = "/v1/processes/{id}/stdin",
    params(
        ("id" = ProcessId, Path, description = "Chosen by the client"),
        WriteQuery
    ),
    request_body(content = crate::openapi::Bytes, content_type = "application/octet-stream"),
    responses((status = 204, description = "The whole body was written"))
))]
pub(crate) async fn stdin(
    State(api): State<Api>,
    IdParameter(id): IdParameter<ProcessId>,
    query: QueryResult<WriteQuery>,
    mut body: Body,
) -> Result<StatusCode, ApiError> {
    let Query(query) = query.map_err(|error| invalid_parameter("close", &error))?;
    let mut writer = api.processes().find(id)?.write_stdin().await?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::Body(error.to_string()))?;
        if let Ok(bytes) = frame.into_data() {
            writer.write(&bytes).await?;
        }
    }
    if query.close {
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
    responses((status = 204, description = "The signal was sent"))
))]
pub(crate) async fn signal(
    State(api): State<Api>,
    IdParameter(id): IdParameter<ProcessId>,
    JsonBody(body): JsonBody,
) -> Result<StatusCode, ApiError> {
    let request: SignalRequest = deserialize(body)?;
    let signal = parse_signal(&request.signal).ok_or_else(|| {
        ApiError::Malformed(format!(
            "field `signal`: there is no signal {}",
            request.signal
        ))
    })?;
    api.processes()
        .find(id)?
        .signal(signal, request.scope)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /v1/processes/{id}`. No effect on a process that has exited, even if it is no longer
/// retained.
#[cfg_attr(test, utoipa::path(
    delete,
    path = "/v1/processes/{id}",
    params(
        ("id" = ProcessId, Path, description = "Chosen by the client")
    ),
    responses((status = 204, description = "The process tree is killed"))
))]
pub(crate) async fn kill(
    State(api): State<Api>,
    IdParameter(id): IdParameter<ProcessId>,
) -> Result<StatusCode, ApiError> {
    match api.processes().find(id) {
        Ok(process) => process.kill(),
        Err(ProcessError::Gone(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/processes/{id}/acknowledge`. Differs from a kill, which must not drop the exit of a
/// process that has just exited.
#[cfg_attr(test, utoipa::path(
    post,
    path = "/v1/processes/{id}/acknowledge",
    params(
        ("id" = ProcessId, Path, description = "Chosen by the client")
    ),
    responses((status = 204, description = "The process was discarded"))
))]
pub(crate) async fn acknowledge(
    State(api): State<Api>,
    IdParameter(id): IdParameter<ProcessId>,
) -> Result<StatusCode, ApiError> {
    api.processes().acknowledge(id)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn stream(api: &Api, process: Arc<Process>, query: &ReadQuery, follow: bool) -> Response {
    let cursors = Cursors {
        stdout: query.stdout,
        stderr: query.stderr,
    };
    let frames = frames(Arc::clone(&process), cursors, follow);
    let is_settled = async {
        if follow {
            process.exited_or_large().await;
        }
    };
    framed_response(
        &api.0.ticks,
        is_settled,
        || process.is_ready(cursors),
        frames,
    )
    .await
}

fn parse(query: QueryResult<ReadQuery>) -> Result<ReadQuery, ApiError> {
    query
        .map(|Query(query)| query)
        .map_err(|error| invalid_parameter("stdout, stderr or follow", &error))
}

fn invalid_parameter(name: &'static str, error: &QueryRejection) -> ApiError {
    ApiError::Parameter {
        name,
        problem: error.body_text(),
    }
}

fn parse_signal(name: &SignalName) -> Option<Signal> {
    match name {
        SignalName::Number(number) => Signal::try_from(*number).ok(),
        SignalName::Name(name) if name.starts_with("SIG") => name.parse().ok(),
        SignalName::Name(name) => format!("SIG{name}").parse().ok(),
    }
}
