//! Queries in GraphQL. Its errors have status 200.

use reqwest::Url;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::GitHub;
use crate::error::RequestError;
use crate::http::Decoded;

#[derive(Deserialize)]
struct Response<T> {
    data: Option<T>,
    #[serde(default)]
    errors: Vec<QueryError>,
}

#[derive(Deserialize)]
struct QueryError {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    message: String,
}

/// Returns the base URL of GraphQL. An Enterprise server has it next to the REST API.
pub(super) fn base_url(rest: &Url) -> Url {
    let mut url = rest.clone();
    let path = rest.path().trim_end_matches('/');
    let parent = path
        .strip_suffix("/v3")
        .filter(|parent| parent.ends_with("/api"));
    url.set_path(parent.unwrap_or(path));
    url
}

impl GitHub {
    pub(super) async fn query<T: DeserializeOwned>(
        &self,
        query: &'static str,
        variables: Value,
    ) -> Result<T, RequestError> {
        let url = self.graphql.url(&["graphql"], &[])?;
        let body = json!({ "query": query, "variables": variables });
        let Decoded {
            body: Response { data, errors },
            headers,
        } = self.graphql.post(url, &body).await?;
        let is_kind = |kind: &str| {
            errors
                .iter()
                .any(|error| error.kind.as_deref() == Some(kind))
        };
        if is_kind("RATE_LIMITED") || is_kind("RATE_LIMIT") {
            return Err(self.graphql.rate_limited(&headers));
        }
        if is_kind("NOT_FOUND") {
            return Err(RequestError::NotFound);
        }
        let message = errors.first().map_or("", |error| &error.message);
        let detail = self.graphql.detail(message);
        match data {
            _ if is_kind("INSUFFICIENT_SCOPES") => Err(RequestError::TokenRejected {
                status: 403,
                detail,
            }),
            // A field that the token cannot see is null, and leaves an error.
            Some(data) => Ok(data),
            None => Err(RequestError::Status {
                status: 200,
                detail,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphql_is_beside_the_rest_api_of_enterprise_servers() {
        let base = |rest: &str| base_url(&rest.parse().unwrap()).to_string();
        assert_eq!(base("https://api.github.com/"), "https://api.github.com/");
        assert_eq!(
            base("https://git.example.com/api/v3/"),
            "https://git.example.com/api"
        );
        assert_eq!(
            base("https://proxy.example.com/github"),
            "https://proxy.example.com/github"
        );
    }
}
