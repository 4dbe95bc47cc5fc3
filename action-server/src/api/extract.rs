//! Parses the parts of requests. Errors contain the name of the parameter or field.

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
use crate::clients::ClientConnection;
use crate::environment::check_command_environment;
use crate::timeouts::timeout_from_secs;

/// Maximum size of a body that is parsed on the runtime's only thread. Longer ones are parsed by a
/// blocking thread.
const MAX_INLINE_PARSE_BYTES: usize = 64 << 10;

/// The `{id}` of a path.
pub(crate) struct IdParameter<I = ActionId>(pub(super) I);

/// The `{name}` of a session in a path.
pub(crate) struct SessionParameter(pub(super) SessionName);

/// The `{port}` of a path.
pub(crate) struct PortParameter(pub(super) u16);

/// The `after` of the query: the offset of the output from which the client reads. The default is
/// 0.
pub(crate) struct AfterParameter(pub(super) u64);

/// A body of JSON.
pub(crate) struct JsonBody(pub(crate) Value);

impl<I: TryFrom<String, Error = IdError>> FromRequestParts<Api> for IdParameter<I> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, ApiError> {
        Ok(Self(
            path_parameter::<String>("id", parts).await?.try_into()?,
        ))
    }
}

impl FromRequestParts<Api> for SessionParameter {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, ApiError> {
        path_parameter("name", parts).await.map(Self)
    }
}

impl FromRequestParts<Api> for PortParameter {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, ApiError> {
        path_parameter::<NonZeroU16>("port", parts)
            .await
            .map(|port| Self(port.get()))
    }
}

async fn path_parameter<T: DeserializeOwned + Send>(
    name: &'static str,
    parts: &mut Parts,
) -> Result<T, ApiError> {
    let path = Path::from_request_parts(parts, &()).await;
    path.map(|Path(value)| value)
        .map_err(|error| ApiError::Parameter {
            name,
            problem: error.body_text(),
        })
}

impl FromRequestParts<Api> for AfterParameter {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        #[derive(Deserialize)]
        struct Parameters {
            #[serde(default)]
            after: u64,
        }
        let query = Query::<Parameters>::from_request_parts(parts, api).await;
        let Query(parameters) = query.map_err(|error| ApiError::Parameter {
            name: "after",
            problem: error.body_text(),
        })?;
        Ok(Self(parameters.after))
    }
}

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let client = request
            .extensions()
            .get::<Arc<ClientConnection>>()
            .map(Arc::clone)
            .unwrap_or_default();
        let bytes = Bytes::from_request(request.map(paced), state)
            .await
            .map_err(to_body_error)?;
        client.authenticate();
        let length = bytes.len();
        let parse = move || {
            serde_json::from_slice(&bytes)
                .map(Self)
                .map_err(ApiError::NotJson)
        };
        if length <= MAX_INLINE_PARSE_BYTES {
            return parse();
        }
        tokio::task::spawn_blocking(parse)
            .await
            .unwrap_or(Err(ApiError::Failed))
    }
}

fn to_body_error(rejection: BytesRejection) -> ApiError {
    let problem = rejection.body_text();
    match rejection.into_response().status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::BodyTooLarge(BODY_BYTES),
        _ => ApiError::Body(problem),
    }
}

/// Deserializes the body of a route that V0 does not have. Errors contain the path of the field.
pub(super) fn deserialize<T: DeserializeOwned>(body: Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(body).map_err(|error| {
        let path = error.path().to_string();
        let problem = error.into_inner();
        ApiError::Malformed(if path == "." {
            problem.to_string()
        } else {
            format!("field `{path}`: {problem}")
        })
    })
}

/// Parses an action event.
pub(crate) fn action_request(event: Value) -> Result<ActionRequest, ApiError> {
    if let Some(kind) = event.get("action").and_then(Value::as_str)
        && !Action::KINDS.contains(&kind)
    {
        return Err(ApiError::NoSuchAction(kind.to_owned()));
    }
    let request: ActionRequest =
        serde_json::from_value(event).map_err(|error| ApiError::Malformed(error.to_string()))?;
    check_command_environment(&request.environment)
        .map_err(|error| ApiError::Malformed(format!("field `environment`: {error}")))?;
    if let Some(seconds) = request.timeout
        && timeout_from_secs(seconds).is_none()
    {
        let problem = format!("field `timeout`: {seconds} is not a valid number of seconds");
        return Err(ApiError::Malformed(problem));
    }
    Ok(request)
}
