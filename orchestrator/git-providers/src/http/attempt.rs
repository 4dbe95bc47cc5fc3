//! One request and its complete response, with a limit of its length.

use std::error::Error;

use reqwest::header::HeaderMap;
use reqwest::{RequestBuilder, Response};

use super::credentials::Credentials;
use super::failure;
use crate::address_policy::RefusedAddress;
use crate::error::RequestError;

/// Maximum length of a response, in bytes: more than a page of a hundred repositories, and any
/// microagent.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// Maximum length of an error response, in bytes. A longer one counts as empty.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// A successful response.
#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

pub(super) async fn send(
    request: RequestBuilder,
    credentials: &Credentials,
) -> Result<RawResponse, RequestError> {
    let response = tls::foreign(request.send())
        .await
        .map_err(connection_error)?;
    let (status, headers) = (response.status(), response.headers().clone());
    tracing::debug!(host = response.url().host_str(), %status, "received a response");
    // Azure DevOps sends 203 and a sign-in page instead of 401.
    if status.is_success() && status.as_u16() != 203 {
        return Ok(RawResponse {
            headers,
            body: read(response, MAX_RESPONSE_BYTES).await?,
        });
    }
    let body = read(response, MAX_ERROR_BYTES).await.unwrap_or_default();
    Err(failure::classify(
        status.as_u16(),
        &headers,
        &body,
        credentials,
    ))
}

async fn read(mut response: Response, limit: usize) -> Result<Vec<u8>, RequestError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(connection_error)? {
        if body.len() + chunk.len() > limit {
            return Err(RequestError::TooLarge { limit });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn connection_error(error: reqwest::Error) -> RequestError {
    match refused_address(&error) {
        Some(source) => RequestError::AddressRefused { source },
        None => RequestError::Unreachable {
            source: error.without_url(),
        },
    }
}

/// Finds the error of the resolver among the causes.
fn refused_address(error: &(dyn Error + 'static)) -> Option<RefusedAddress> {
    error
        .downcast_ref()
        .cloned()
        .or_else(|| refused_address(error.source()?))
}
