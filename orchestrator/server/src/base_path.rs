//! The path below which the server is reached, for a reverse proxy that forwards a folder of its
//! host.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{OriginalUri, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::Uri;
use http::uri::PathAndQuery;

use crate::error::ApiError;
use crate::origin;
use crate::state::ServerState;

/// Maximum length of a path.
const MAX_LENGTH: usize = 200;

/// A path such as `/glovebox`, below which all routes are. Empty by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BasePath(String);

/// The error of a text that is no base path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a path such as /glovebox, of letters, digits, `-`, `_`, `.` and `~`")]
pub struct InvalidBasePath;

/// The URI of a request before the base path was removed, for another host.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedUri(pub(crate) Uri);

impl FromStr for BasePath {
    type Err = InvalidBasePath;

    fn from_str(text: &str) -> Result<Self, InvalidBasePath> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
        // Dots would be resolved by clients.
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(is_plain) && name.bytes().any(|byte| byte != b'.')
        };
        let path = text.strip_suffix('/').unwrap_or(text);
        let names = path
            .strip_prefix('/')
            .map(|names| names.split('/').all(is_name));
        match names {
            _ if path.len() > MAX_LENGTH => Err(InvalidBasePath),
            None if path.is_empty() && !text.is_empty() => Ok(Self::default()),
            Some(true) => Ok(Self(path.to_owned())),
            None | Some(false) => Err(InvalidBasePath),
        }
    }
}

impl fmt::Display for BasePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl BasePath {
    /// Returns the path of cookies, which other programs of the same host do not get, and of the
    /// OpenAPI document's server.
    pub(crate) fn path(&self) -> &str {
        if self.0.is_empty() { "/" } else { &self.0 }
    }

    /// Returns the path below this one. `None` for a path outside.
    fn strip(&self, path: &PathAndQuery) -> Option<PathAndQuery> {
        let rest = path.as_str().strip_prefix(&self.0)?;
        match rest.as_bytes().first() {
            Some(b'/') => rest.parse().ok(),
            None | Some(b'?') => format!("/{rest}").parse().ok(),
            Some(_) => None,
        }
    }
}

/// Removes the base path from a request, and rejects requests outside of it. Host names of ports
/// have no base path.
pub(crate) async fn remove(
    State(state): State<Arc<ServerState>>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let host = origin::host(request.uri(), request.headers());
    let is_port = host.is_some_and(|host| state.port_hosts.find(&host).is_some());
    if !state.base_path.0.is_empty() && !is_port {
        let received = request.uri().clone();
        let path = received
            .path_and_query()
            .and_then(|path| state.base_path.strip(path));
        let mut parts = received.clone().into_parts();
        parts.path_and_query = Some(path.ok_or(ApiError::NoRoute)?);
        let uri = Uri::from_parts(parts).map_err(|_| ApiError::NoRoute)?;
        *request.uri_mut() = uri.clone();
        request.extensions_mut().insert(OriginalUri(uri));
        request.extensions_mut().insert(ReceivedUri(received));
    }
    Ok(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_the_base_are_served() {
        let base: BasePath = "/tools/glovebox/".parse().unwrap();
        let strip = |path: &str| {
            base.strip(&path.parse().unwrap())
                .map(|path| path.to_string())
        };
        for (path, expected) in [
            ("/tools/glovebox/api/x?a=/b", Some("/api/x?a=/b")),
            ("/tools/glovebox", Some("/")),
            ("/tools/glovebox/", Some("/")),
            ("/tools/glovebox?a", Some("/?a")),
            ("/tools/glovebox//evil", Some("//evil")),
            ("/tools/gloveboxes", None),
            ("/api/x", None),
            ("/", None),
            ("/tools/%67lovebox/", None),
        ] {
            assert_eq!(strip(path).as_deref(), expected, "{path}");
        }
        assert_eq!(
            (base.to_string().as_str(), base.path()),
            ("/tools/glovebox", "/tools/glovebox")
        );
    }

    #[test]
    fn base_path_is_checked() {
        assert_eq!("/".parse(), Ok(BasePath::default()));
        assert_eq!(BasePath::default().path(), "/");
        for text in [
            "",
            "a",
            "//",
            "/a//b",
            "/..",
            "/a/./b",
            "/a b",
            "/a?b",
            "/%61",
            "/a;b",
            &"/a".repeat(101),
        ] {
            assert_eq!(text.parse::<BasePath>(), Err(InvalidBasePath), "{text}");
        }
    }
}
