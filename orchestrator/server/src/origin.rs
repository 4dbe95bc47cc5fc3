//! Which `Host` and `Origin` headers are accepted. A page of another origin, or of a name that was rebound to this machine,
//! must not reach the server through the user's browser.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::uri::Authority;
use http::{HeaderMap, Uri, header};

use crate::client_address::Client;
use crate::error::ApiError;
use crate::state::ServerState;

/// Names of this machine for its own programs.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Host names under which a server may be reached, besides those of the loopback interface.
#[derive(Debug, Clone, Default)]
pub struct AllowedHosts {
    names: Vec<String>,
    is_any: bool,
}

impl AllowedHosts {
    /// Accepts these names, on any port. `*` accepts all.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let names: Vec<_> = names.into_iter().map(|name| name.to_ascii_lowercase()).collect();
        Self { is_any: names.iter().any(|name| name == "*"), names }
    }

    /// Checks a name of this server: a host name or an address, or `*` for any.
    ///
    /// # Errors
    /// A text for the operator.
    pub fn parse_name(text: &str) -> Result<String, String> {
        let is_host = text.parse::<Authority>().is_ok_and(|authority| authority.host() == text);
        if is_host || text == "*" {
            Ok(text.to_owned())
        } else {
            Err("expected a name such as example.org, without a scheme and a port, or *".to_owned())
        }
    }

    fn accept(&self, authority: &Authority) -> bool {
        let host = authority.host().to_ascii_lowercase();
        // A user name in front would make the name ambiguous.
        let is_plain = !authority.as_str().contains('@');
        is_plain && (self.is_any || LOOPBACK_NAMES.contains(&host.as_str()) || self.names.contains(&host))
    }

    /// Whether a request was sent to an accepted name, and not by a page of another origin.
    fn accept_request(&self, uri: &Uri, headers: &HeaderMap, is_tls: bool) -> bool {
        host(uri, headers).is_some_and(|host| self.accept(&host) && is_same_origin(headers, &host, is_tls))
    }
}

/// Returns the host that a request was sent to. `None` if it is not clear, because proxies could choose another one of several.
pub(crate) fn host(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let mut named = headers.get_all(header::HOST).iter();
    let header = named.next().map(|host| host.to_str().ok()?.parse::<Authority>().ok());
    match (uri.authority(), header, named.next()) {
        (None, Some(host), None) => host,
        (Some(uri), None, None) => Some(uri.clone()),
        (Some(uri), Some(host), None) => host.filter(|host| host == uri),
        _ => None,
    }
}

/// Whether a request is not from a page of another origin than that of the host. An encrypted request is not from a page that was
/// not, because anyone between could have written that page. A plain one may be from a page of HTTPS: a proxy that is not trusted
/// can have ended TLS.
pub(crate) fn is_same_origin(headers: &HeaderMap, host: &Authority, is_tls: bool) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    origin.is_some_and(|(scheme, authority)| {
        let has_scheme = scheme == "https" || (scheme == "http" && !is_tls);
        has_scheme && authority.eq_ignore_ascii_case(host.as_str())
    })
}

/// Rejects requests to other names and from other origins.
pub(crate) async fn require_own_origin(
    State(state): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let is_tls = Client::find(request.extensions()).is_some_and(|client| client.is_tls);
    if state.allowed_hosts.accept_request(request.uri(), request.headers(), is_tls) {
        Ok(next.run(request).await)
    } else {
        Err(ApiError::ForeignOrigin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(host: &str, origin: Option<&str>) -> bool {
        let hosts = AllowedHosts::new(["Example.org".to_owned()]);
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        hosts.accept_request(&Uri::from_static("/api"), &headers, false)
    }

    #[test]
    fn page_that_is_not_encrypted_reaches_no_encrypted_server() {
        let host = Authority::from_static("example.org");
        let is_same = |origin: &'static str, is_tls| {
            let headers = HeaderMap::from_iter([(header::ORIGIN, http::HeaderValue::from_static(origin))]);
            is_same_origin(&headers, &host, is_tls)
        };
        assert!(is_same("https://example.org", true) && !is_same("http://example.org", true));
        assert!(is_same("https://example.org", false) && is_same("http://example.org", false));
        assert!(!is_same("ftp://example.org", false) && !is_same("ws://example.org", true));
    }

    #[test]
    fn own_names_are_accepted_on_any_port() {
        for host in ["localhost", "localhost:3000", "127.0.0.1:1", "[::1]:80", "example.org", "EXAMPLE.org:8"]
        {
            assert!(accepts(host, None), "{host}");
            assert!(accepts(host, Some(&format!("http://{host}"))), "{host}");
        }
    }

    #[test]
    fn name_has_no_scheme_and_no_port() {
        for name in ["example.org", "localhost", "10.0.0.1", "[2001:db8::1]", "*"] {
            assert_eq!(AllowedHosts::parse_name(name).as_deref(), Ok(name));
        }
        for text in [
            "",
            "http://example.org",
            "example.org:80",
            "example.org/",
            "a@example.org",
            "2001:db8::1",
            "a b",
        ] {
            assert!(AllowedHosts::parse_name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn other_names_and_origins_are_rejected() {
        for host in
            ["evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "", "a b", "10.0.0.1"]
        {
            assert!(!accepts(host, None), "{host}");
        }
        for origin in
            ["http://evil.example", "http://localhost:3001", "null", "", "http://localhost:3000@evil"]
        {
            assert!(!accepts("localhost:3000", Some(origin)), "{origin}");
        }
    }

    #[test]
    fn request_to_two_hosts_is_rejected() {
        let hosts = AllowedHosts::new(["*".to_owned()]);
        let accepts = |uri: &'static str, names: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for name in names {
                headers.append(header::HOST, http::HeaderValue::from_static(name));
            }
            hosts.accept_request(&Uri::from_static(uri), &headers, false)
        };
        assert!(accepts("/", &["a"]) && accepts("http://a/", &["a"]) && accepts("http://a/", &[]));
        assert!(!accepts("/", &["a", "b"]) && !accepts("/", &["a", "a"]) && !accepts("http://a/", &["b"]));
    }

    #[test]
    fn request_without_a_host_is_rejected() {
        assert!(!AllowedHosts::new(["*".to_owned()]).accept_request(
            &Uri::from_static("/"),
            &HeaderMap::new(),
            false
        ));
    }
}
