//! `GET /v1/openapi.json`: the OpenAPI document of the native API.
//!
//! A test generates `openapi.json` from the handlers and the protocol's types. The program contains
//! it compressed.

#[cfg(test)]
mod document;

use axum::http::header;
use axum::response::{IntoResponse as _, Response};

use crate::api::error::ApiError;
use crate::embedded_text::inflate;

#[cfg(test)]
pub(crate) use document::{Bytes, Event};

static DEFLATED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.deflate"));

/// The same for every server of this version.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/openapi.json",
    responses((status = 200, description = "This document", body = serde_json::Value))
))]
pub(crate) async fn openapi() -> Result<Response, ApiError> {
    let json = inflate(DEFLATED).map_err(|_| ApiError::Failed)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}
