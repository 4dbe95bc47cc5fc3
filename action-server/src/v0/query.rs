//! Query parameters.

use axum::extract::Query;
use axum::http::Uri;
use serde::de::DeserializeOwned;

use crate::api::error::ApiError;

/// Deserializes the query. Invalid or missing parameters are the same error as in V0.
pub(super) fn read_query<T: DeserializeOwned>(uri: &Uri) -> Result<T, ApiError> {
    let query = Query::<T>::try_from_uri(uri);
    query
        .map(|Query(parameters)| parameters)
        .map_err(|error| ApiError::Malformed(error.body_text()))
}
