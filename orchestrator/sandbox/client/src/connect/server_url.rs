//! The URL of a server: `http` or `https`, a host, and optionally a port and a path prefix.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, Scheme};

/// An absolute URL without user name, password and query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    is_tls: bool,
    authority: Authority,
    /// Empty, or starts with `/` and does not end with one.
    prefix: String,
}

/// Why a text is not a server URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the URL {text:?} {problem}: write http://HOST:PORT or https://HOST[:PORT][/PATH]")]
pub struct ServerUrlError {
    text: String,
    problem: &'static str,
}

impl ServerUrl {
    /// Whether the scheme is `https`.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Returns the host name or IP address, without brackets.
    pub fn host(&self) -> &str {
        self.authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
    }

    /// Returns the port. The default of the scheme if the URL has none.
    pub fn port(&self) -> u16 {
        self.authority
            .port_u16()
            .unwrap_or(if self.is_tls { 443 } else { 80 })
    }

    /// Returns host and port as in requests.
    pub fn authority(&self) -> &str {
        self.authority.as_str()
    }

    /// Adds the prefix to a path.
    pub fn path(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    /// Returns the URL of a path and query on this server.
    pub(crate) fn resolve(&self, uri: &Uri) -> Uri {
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let scheme = if self.is_tls {
            Scheme::HTTPS
        } else {
            Scheme::HTTP
        };
        let whole = Uri::builder()
            .scheme(scheme)
            .authority(self.authority.clone());
        // Both parts were parsed before. A server rejects a path that is too long.
        whole
            .path_and_query(self.path(path))
            .build()
            .unwrap_or_default()
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.prefix)
    }
}

impl FromStr for ServerUrl {
    type Err = ServerUrlError;

    fn from_str(text: &str) -> Result<Self, ServerUrlError> {
        // The text may contain a password.
        let shown = text.rsplit_once('@').map_or(text, |(_secret, rest)| rest);
        let invalid = |problem| ServerUrlError {
            text: shown.chars().take(256).collect(),
            problem,
        };
        let uri: Uri = text.trim().parse().map_err(|_| invalid("is malformed"))?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(invalid("starts with neither http:// nor https://")),
        };
        let authority = uri
            .authority()
            .filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(|| invalid("has no host"))?.clone();
        if authority.as_str().contains('@') {
            return Err(invalid(
                "contains a user name or a password: use the key instead",
            ));
        }
        if uri.query().is_some() {
            return Err(invalid("has a query"));
        }
        Ok(Self {
            is_tls,
            authority,
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ServerUrl;

    #[test]
    fn url_is_parsed_into_host_port_and_prefix() {
        for (text, host, port, is_tls, resolved) in [
            (
                "http://10.0.0.7:8000",
                "10.0.0.7",
                8000,
                false,
                "http://10.0.0.7:8000/v1/info?a=b",
            ),
            (
                "https://box.example/",
                "box.example",
                443,
                true,
                "https://box.example/v1/info?a=b",
            ),
            (
                "https://box.example/a/b/",
                "box.example",
                443,
                true,
                "https://box.example/a/b/v1/info?a=b",
            ),
            (
                "http://[::1]:7",
                "::1",
                7,
                false,
                "http://[::1]:7/v1/info?a=b",
            ),
        ] {
            let url: ServerUrl = text.parse().unwrap();
            assert_eq!(
                (url.host(), url.port(), url.is_tls()),
                (host, port, is_tls),
                "{text}"
            );
            assert_eq!(
                url.resolve(&"http://sandbox/v1/info?a=b".parse().unwrap()),
                resolved
            );
            assert_eq!(url.to_string(), text.trim_end_matches('/'));
        }
    }

    #[test]
    fn invalid_url_is_rejected_without_printing_a_password() {
        for text in [
            "",
            "box.example",
            "ftp://box",
            "https://",
            "http://a?b=c",
            "unix:///run/x",
            "http://u:secret@h",
        ] {
            let error = text.parse::<ServerUrl>().unwrap_err().to_string();
            assert!(
                error.contains("https://HOST") && !error.contains("secret"),
                "{error}"
            );
        }
    }
}
