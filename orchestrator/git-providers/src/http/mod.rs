//! Requests to one provider with one token.

mod attempt;
mod credentials;
mod failure;

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use reqwest::{RequestBuilder, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::address_policy::is_same_origin;
use crate::client::GitClient;
use crate::error::RequestError;
use crate::names::is_segment;
pub(crate) use attempt::RawResponse;
pub(crate) use credentials::Credentials;

/// Maximum number of retries of a GET.
const MAX_RETRIES: u32 = 3;

/// Maximum part of a delay that is added to it, so that clients that fail together do not retry
/// together.
const JITTER: f64 = 0.25;

/// Sends requests below a base URL.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    client: GitClient,
    base: Url,
    credentials: Credentials,
    accept: HeaderValue,
}

/// A decoded response, and its headers.
#[derive(Debug)]
pub(crate) struct Decoded<T> {
    pub(crate) body: T,
    pub(crate) headers: HeaderMap,
}

impl Api {
    pub(crate) fn new(
        client: GitClient,
        base: Url,
        credentials: Credentials,
        accept: &'static str,
    ) -> Self {
        Self {
            client,
            base,
            credentials,
            accept: HeaderValue::from_static(accept),
        }
    }

    /// Returns the same API at another base URL.
    pub(crate) fn with_base(&self, base: Url) -> Self {
        Self {
            base,
            ..self.clone()
        }
    }

    pub(crate) fn base(&self) -> &Url {
        &self.base
    }

    /// Returns the URL of a path below the base. Escapes its segments, `/` included.
    ///
    /// A segment `.` or `..` would change the path, and an empty one would request another
    /// resource.
    pub(crate) fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Url, RequestError> {
        let invalid = |problem| RequestError::InvalidInput {
            field: "path",
            problem,
        };
        if !path.iter().all(|segment| is_segment(segment)) {
            return Err(invalid("a part is empty, `.` or `..`"));
        }
        let mut url = self.base.clone();
        let mut segments = url
            .path_segments_mut()
            .map_err(|()| invalid("the base URL has no path"))?;
        segments.pop_if_empty().extend(path);
        drop(segments);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    /// Parses a URL of a response, which must have the origin of this API.
    pub(crate) fn next_url(&self, text: &str) -> Result<Url, RequestError> {
        let url = Url::parse(text).map_err(|_| RequestError::OtherOrigin)?;
        if is_same_origin(&url, &self.base) {
            Ok(url)
        } else {
            Err(RequestError::OtherOrigin)
        }
    }

    /// Formats a provider's text as the detail of an error.
    pub(crate) fn detail(&self, text: &str) -> String {
        self.credentials.detail(text)
    }

    /// Returns the error of an exceeded rate limit that a successful response reports.
    pub(crate) fn rate_limited(&self, headers: &HeaderMap) -> RequestError {
        RequestError::RateLimited {
            retry_at: failure::retry_at(headers, Timestamp::now()),
        }
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, url: Url) -> Result<T, RequestError> {
        Ok(self.get_with_headers(url).await?.body)
    }

    pub(crate) async fn get_with_headers<T: DeserializeOwned>(
        &self,
        url: Url,
    ) -> Result<Decoded<T>, RequestError> {
        let RawResponse { headers, body } = self.get_raw(url, &self.accept).await?;
        Ok(Decoded {
            body: decode(&body)?,
            headers,
        })
    }

    /// Returns a file's text. Replaces what is not UTF-8.
    pub(crate) async fn get_text(
        &self,
        url: Url,
        accept: &'static str,
    ) -> Result<String, RequestError> {
        let response = self.get_raw(url, &HeaderValue::from_static(accept)).await?;
        Ok(String::from_utf8_lossy(&response.body).into_owned())
    }

    /// Sends a query that is too long for a URL. Is not retried.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        url: Url,
        body: &(impl Serialize + Sync),
    ) -> Result<Decoded<T>, RequestError> {
        let request = self.client.http.post(url.clone()).json(body);
        let RawResponse { headers, body } = self.attempt(&url, request, &self.accept).await?;
        Ok(Decoded {
            body: decode(&body)?,
            headers,
        })
    }

    async fn get_raw(&self, url: Url, accept: &HeaderValue) -> Result<RawResponse, RequestError> {
        for retry in 1..=MAX_RETRIES {
            let error = match self
                .attempt(&url, self.client.http.get(url.clone()), accept)
                .await
            {
                Err(error) if error.is_transient() => error,
                result => return result,
            };
            let delay = self.retry_delay(retry);
            tracing::warn!(host = url.host_str(), retry, ?delay, %error, "retrying the request");
            tokio::time::sleep(delay).await;
        }
        self.attempt(&url, self.client.http.get(url.clone()), accept)
            .await
    }

    fn retry_delay(&self, retry: u32) -> Duration {
        let delay = self
            .client
            .shared
            .limits
            .retry_delay
            .saturating_mul(1 << (retry - 1));
        delay.mul_f64(1.0 + JITTER * fastrand::f64())
    }

    async fn attempt(
        &self,
        url: &Url,
        request: RequestBuilder,
        accept: &HeaderValue,
    ) -> Result<RawResponse, RequestError> {
        self.client.shared.policy.check_url(url)?;
        let limit = self.client.shared.limits.attempt_timeout;
        let request = request
            .headers(self.credentials.headers())
            .header(ACCEPT, accept.clone());
        tokio::time::timeout(limit, attempt::send(request, &self.credentials))
            .await
            .map_err(|_| RequestError::TimedOut { limit })?
    }
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, RequestError> {
    let mut json = serde_json::Deserializer::from_slice(body);
    serde_path_to_error::deserialize(&mut json).map_err(|source| RequestError::Malformed { source })
}
