//! The parameters in a request's address.

use axum::extract::Query;
use axum::http::Uri;
use serde::de::DeserializeOwned;

use crate::api::error::ApiError;

/// Wrong or missing ones are bad parameters, in V0's sense.
pub(super) fn read_query<T: DeserializeOwned>(uri: &Uri) -> Result<T, ApiError> {
    let query = Query::<T>::try_from_uri(uri);
    query.map(|Query(parameters)| parameters).map_err(|error| ApiError::Malformed(error.body_text()))
}
