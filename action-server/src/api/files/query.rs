//! The parameters of the file routes. They must be UTF-8: with replacement characters, a path would
//! name another file.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::Api;
use crate::api::error::ApiError;

/// The query of a request.
pub(super) struct FileQuery<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Api> for FileQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        if !is_utf8(parts.uri.query().unwrap_or_default()) {
            return Err(ApiError::Query("a parameter is not UTF-8".into()));
        }
        let query = Query::<T>::from_request_parts(parts, api).await;
        let Query(query) = query.map_err(|error| ApiError::Query(error.body_text()))?;
        Ok(Self(query))
    }
}

/// Deserializes a body.
pub(super) fn body<T: DeserializeOwned>(json: Value) -> Result<T, ApiError> {
    serde_json::from_value(json).map_err(|error| ApiError::Malformed(error.to_string()))
}

fn is_utf8(query: &str) -> bool {
    let mut bytes = query.bytes();
    let mut decoded = Vec::with_capacity(query.len());
    while let Some(byte) = bytes.next() {
        let mut digits = bytes.clone();
        let mut digit = || {
            digits
                .next()
                .and_then(|digit| char::from(digit).to_digit(16))
        };
        match (byte, digit(), digit()) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                bytes = digits;
            }
            _ => decoded.push(byte),
        }
    }
    std::str::from_utf8(&decoded).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_rejected_when_it_is_not_utf8() {
        assert!(is_utf8("path=a%20b%c3%a4&x=%") && is_utf8("") && is_utf8("%zz%4"));
        assert!(!is_utf8("path=%ff") && !is_utf8("path=%c3+%a4") && !is_utf8("%%ff"));
    }
}
