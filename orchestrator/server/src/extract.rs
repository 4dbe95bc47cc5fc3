//! Extractors whose errors name the field.

use std::error::Error;
use std::sync::Arc;

use accounts::Caller;
use axum::RequestExt as _;
use axum::body::{Bytes, HttpBody as _};
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use futures_util::StreamExt as _;
use http::header;
use http::request::Parts;
use http_body_util::LengthLimitError;
use protocol::ConversationId;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use crate::error::ApiError;
use crate::input_memory::{BodyMemory, FREE_BYTES};
use crate::json_values::{MAX_VALUES, check_count};
use crate::paced_body::is_too_slow;
use crate::state::ServerState;
use crate::work::parse_body;

/// Maximum size of a body: a trajectory, or a message with pictures.
pub(crate) const MAX_BODY_BYTES: usize = 32 << 20;

/// A JSON body. An empty body is `{}`.
pub(crate) struct JsonBody<T>(pub(crate) T);

/// The fields of a form without files.
pub(crate) struct FormBody<T>(pub(crate) T);

/// The parameters of the query.
pub(crate) struct QueryParameters<T>(pub(crate) T);

/// The conversation that the path names, which the caller may see. Rejects those of other users as
/// if there were none. It is the first extractor of a route, so that no other error tells them
/// apart.
pub(crate) struct ConversationPath(pub(crate) ConversationId);

/// The caller of a request, which [`require_key`](crate::auth::require_key) has found.
pub(crate) struct RequestCaller(pub(crate) Caller);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Arc<ServerState>> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &Arc<ServerState>) -> Result<Self, ApiError> {
        let (_, body) = read_body(request).await?;
        parse_body(state, body, parse_json).await.map(Self)
    }
}

impl<T: DeserializeOwned + Send + 'static> FromRequest<Arc<ServerState>> for FormBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &Arc<ServerState>) -> Result<Self, ApiError> {
        let (_, body) = read_body(request).await?;
        parse_body(state, body, |body| parse_pairs(body, "body"))
            .await
            .map(Self)
    }
}

/// Reads the whole body of a request, once there is memory for it. Its maximum is the one of the
/// route, and [`FREE_BYTES`] if the request has no caller.
pub(crate) async fn read_body(request: Request) -> Result<(Parts, Bytes), ApiError> {
    let (parts, body) = request.into_parts();
    let memory = parts.extensions.get::<BodyMemory>();
    let hold = async |bytes: usize| match memory {
        Some(memory) => memory.hold(bytes).await,
        None if bytes > FREE_BYTES => Err(ApiError::TooLarge),
        None => Ok(()),
    };
    let declared = parts
        .headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse().ok());
    let declared: usize = declared.unwrap_or(0);
    let mut request = Request::new(body);
    // Has the maximum number of bytes.
    request.extensions_mut().clone_from(&parts.extensions);
    let body = request.into_limited_body();
    let max = body.size_hint().upper().map_or(MAX_BODY_BYTES, |max| {
        max.try_into().unwrap_or(MAX_BODY_BYTES)
    });
    if declared > max.min(MAX_BODY_BYTES) {
        return Err(ApiError::TooLarge);
    }
    // Before anything of it is read: of several bodies with a part of the memory each, none would
    // be complete.
    hold(declared).await?;
    let mut frames = body.into_data_stream();
    let mut body = Vec::with_capacity(declared);
    while let Some(frame) = frames.next().await {
        let frame = frame.map_err(to_body_error)?;
        hold(body.len() + frame.len()).await?;
        body.extend_from_slice(&frame);
    }
    Ok((parts, body.into()))
}

fn to_body_error(error: axum::Error) -> ApiError {
    let mut causes = std::iter::successors(Some(&error as &dyn Error), |&error| error.source());
    if causes.any(|cause| cause.is::<LengthLimitError>()) {
        ApiError::TooLarge
    } else if is_too_slow(&error) {
        ApiError::BodyTooSlow
    } else {
        ApiError::invalid("body", error)
    }
}

/// Parses a JSON value. `whole` is its name in errors.
pub(crate) fn parse_value<T: DeserializeOwned>(value: Value, whole: &str) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(value)
        .map_err(|error| malformed(error.path(), whole, error.inner()))
}

/// Parses a JSON object. An empty body is `{}`.
pub(crate) fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    check_count("body", body, MAX_VALUES)?;
    let body = if body.trim_ascii().is_empty() {
        b"{}"
    } else {
        body
    };
    // Serde would accept an array of the fields' values too.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(malformed_body("must be a JSON object"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| malformed(error.path(), "body", describe(error.inner())))?;
    deserializer
        .end()
        .map_err(|error| malformed_body(describe(&error)))?;
    Ok(value)
}

/// Describes why a text is not the expected JSON, without the words of the parser.
fn describe(error: &serde_json::Error) -> String {
    if error.is_data() {
        let text = error.to_string();
        // The place is that of the field.
        return text
            .rsplit_once(" at line ")
            .map_or(text.clone(), |(problem, _)| problem.to_owned());
    }
    format!(
        "is not valid JSON from line {}, column {} on",
        error.line(),
        error.column()
    )
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParameters<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parse_pairs(parts.uri.query().unwrap_or_default().as_bytes(), "query").map(Self)
    }
}

/// Parses URL-encoded pairs. `whole` is their name in errors.
fn parse_pairs<T: DeserializeOwned>(text: &[u8], whole: &str) -> Result<T, ApiError> {
    let pairs = serde_urlencoded::Deserializer::new(form_urlencoded::parse(text));
    serde_path_to_error::deserialize(pairs)
        .map_err(|error| malformed(error.path(), whole, error.inner()))
}

impl FromRequestParts<Arc<ServerState>> for ConversationPath {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &Arc<ServerState>,
    ) -> Result<Self, ApiError> {
        let parameters = RawPathParams::from_request_parts(parts, state).await;
        let parameters = parameters.map_err(|error| ApiError::invalid("conversation_id", error))?;
        let id = parameters
            .iter()
            .find_map(|(name, value)| (name == "id").then_some(value));
        let id = id.unwrap_or_default().parse();
        let id = id.map_err(|error| ApiError::invalid("conversation_id", error))?;
        let RequestCaller(caller) = RequestCaller::from_request_parts(parts, state).await?;
        state.authorize(&caller, &id).await?;
        Ok(Self(id))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for RequestCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts
            .extensions
            .get()
            .cloned()
            .map(Self)
            .ok_or(ApiError::NoKey)
    }
}

/// Returns the conversation that a part of a path names, which may be percent-encoded.
pub(crate) fn parse_id(part: &str) -> Option<ConversationId> {
    percent_encoding::percent_decode_str(part)
        .decode_utf8()
        .ok()?
        .parse()
        .ok()
}

/// Returns the error of a value that cannot be parsed. Its field is the name of the whole if it is
/// about all of it.
fn malformed(
    path: &serde_path_to_error::Path,
    whole: &str,
    problem: impl std::fmt::Display,
) -> ApiError {
    let field = match path.to_string() {
        // Of the whole, or unknown because the text ends too early.
        field if [".", "?"].contains(&field.as_str()) => whole.to_owned(),
        field => field,
    };
    let segments = path.iter().filter_map(|segment| match segment {
        Segment::Seq { index } => Some(Value::from(*index)),
        Segment::Map { key } | Segment::Enum { variant: key } => Some(Value::from(key.as_str())),
        Segment::Unknown => None,
    });
    let location = std::iter::once(whole.into()).chain(segments).collect();
    ApiError::Malformed {
        field,
        problem: problem.to_string(),
        location,
    }
}

/// Returns the error of a body that is no JSON object.
fn malformed_body(problem: impl std::fmt::Display) -> ApiError {
    ApiError::Malformed {
        field: "body".to_owned(),
        problem: problem.to_string(),
        location: vec!["body".into()],
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Sample {
        #[serde(rename = "name")]
        _name: String,
    }

    #[test]
    fn error_of_a_form_has_the_field() {
        let message = |body: &str| match parse_pairs::<Sample>(body.as_bytes(), "body") {
            Err(error) => error.to_string(),
            Ok(sample) => panic!("{sample:?}"),
        };
        assert_eq!(message(""), "body: missing field `name`");
        assert_eq!(message("name=a&name=b"), "body: duplicate field `name`");
        assert_eq!(
            parse_pairs::<Sample>(b"name=a+b&x=1", "body")
                .unwrap()
                ._name,
            "a b"
        );
    }

    #[test]
    fn error_has_the_field_and_no_words_of_the_parser() {
        let message = |body: &str| match parse_json::<Sample>(body.as_bytes()) {
            Err(error) => error.to_string(),
            Ok(sample) => panic!("{sample:?}"),
        };
        assert_eq!(
            message("{"),
            "body: is not valid JSON from line 1, column 1 on"
        );
        assert_eq!(
            message("{\"name\": \"a\",\n}"),
            "body: is not valid JSON from line 2, column 1 on"
        );
        assert_eq!(
            message("{\"name\": \"a\"} x"),
            "body: is not valid JSON from line 1, column 15 on"
        );
        assert_eq!(
            message("{\"name\": 1}"),
            "name: invalid type: integer `1`, expected a string"
        );
        assert_eq!(message("[]"), "body: must be a JSON object");
    }
}
