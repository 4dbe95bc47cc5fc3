//! What requests carry, read into types; what is wrong with it is told by the name of the parameter or field.

use std::num::NonZeroU16;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::IntoResponse as _;
use protocol::sandbox_api::ActionRequest;
use protocol::{Action, ActionId, IdError, SessionName};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::paced_body::paced;
use super::{Api, BODY_BYTES};
use crate::api::error::ApiError;
use crate::clients::Client;
use crate::environment::check_command_environment;
use crate::timeouts::timeout_from_secs;

/// Longer bodies are read by a thread of their own: the one that serves everybody must not stop for them.
const QUICK_BYTES: usize = 64 << 10;

/// The `{id}` of the path.
pub(crate) struct Id<I = ActionId>(pub(super) I);

/// The `{name}` of a session's path.
pub(crate) struct Session(pub(super) SessionName);

/// The `{port}` of a path.
pub(crate) struct Port(pub(super) u16);

/// How much of the output the client has, from the query; 0 when it does not say.
pub(crate) struct After(pub(super) u64);

/// The whole body.
pub(crate) struct JsonBody(pub(crate) Value);

impl<I: TryFrom<String, Error = IdError>> FromRequestParts<Api> for Id<I> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, api).await;
        let Path(id) =
            path.map_err(|error| ApiError::Parameter { name: "id", problem: error.body_text() })?;
        Ok(Self(id.try_into()?))
    }
}

impl FromRequestParts<Api> for Session {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let path = Path::<SessionName>::from_request_parts(parts, api).await;
        let Path(name) =
            path.map_err(|error| ApiError::Parameter { name: "name", problem: error.body_text() })?;
        Ok(Self(name))
    }
}

impl FromRequestParts<Api> for Port {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let path = Path::<NonZeroU16>::from_request_parts(parts, api).await;
        let Path(port) =
            path.map_err(|error| ApiError::Parameter { name: "port", problem: error.body_text() })?;
        Ok(Self(port.get()))
    }
}

impl FromRequestParts<Api> for After {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        #[derive(Deserialize)]
        struct Parameters {
            #[serde(default)]
            after: u64,
        }
        let query = Query::<Parameters>::from_request_parts(parts, api).await;
        let Query(parameters) =
            query.map_err(|error| ApiError::Parameter { name: "after", problem: error.body_text() })?;
        Ok(Self(parameters.after))
    }
}

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let client = request.extensions().get::<Arc<Client>>().map(Arc::clone).unwrap_or_default();
        let bytes = Bytes::from_request(request.map(paced), state).await.map_err(unreadable)?;
        client.authenticate();
        let length = bytes.len();
        let parse = move || serde_json::from_slice(&bytes).map(Self).map_err(ApiError::NotJson);
        if length <= QUICK_BYTES {
            return parse();
        }
        tokio::task::spawn_blocking(parse).await.unwrap_or(Err(ApiError::Failed))
    }
}

fn unreadable(rejection: BytesRejection) -> ApiError {
    let problem = rejection.body_text();
    match rejection.into_response().status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::BodyTooLarge(BODY_BYTES),
        _ => ApiError::Body(problem),
    }
}

/// Reads a request that is ours alone; what is wrong with it is told with the place it is at.
pub(super) fn typed<T: DeserializeOwned>(body: Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(body).map_err(|error| {
        let place = error.path().to_string();
        let problem = error.into_inner();
        ApiError::Malformed(if place == "." {
            problem.to_string()
        } else {
            format!("field `{place}`: {problem}")
        })
    })
}

/// Reads an action event.
pub(crate) fn action_request(event: Value) -> Result<ActionRequest, ApiError> {
    match event.get("action").and_then(Value::as_str) {
        Some(kind) if !Action::KINDS.contains(&kind) => return Err(ApiError::NoSuchAction(kind.to_owned())),
        _ => {}
    }
    let request: ActionRequest =
        serde_json::from_value(event).map_err(|error| ApiError::Malformed(error.to_string()))?;
    check_command_environment(&request.environment)
        .map_err(|error| ApiError::Malformed(format!("field `environment`: {error}")))?;
    match request.timeout {
        Some(seconds) if timeout_from_secs(seconds).is_none() => {
            Err(ApiError::Malformed(format!("field `timeout`: {seconds} is no number of seconds")))
        }
        _ => Ok(request),
    }
}
