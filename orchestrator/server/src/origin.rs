//! Which `Host`, `Origin` and `Sec-Fetch-*` headers are accepted. A page of another origin, or of a
//! name that was rebound to this machine, must not reach the server through the user's browser.
//!
//! Browsers send no `Origin` with a `GET` for a picture or a script. They send `Sec-Fetch-Site`
//! with it, but only to servers with HTTPS or at a name of the loopback interface.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};

use crate::client_address::Client;
use crate::error::ApiError;
use crate::socket_io;
use crate::state::ServerState;

/// Header of browsers: how the origin of the page that sends a request relates to that of the host.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Header of browsers: what a request is for.
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Names of this machine for its own programs.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Name of this machine for browsers of this server.
pub(crate) const OWN_LOOPBACK_NAME: &str = "glovebox.localhost";

/// Host names under which a server may be reached, besides those of the loopback interface.
#[derive(Debug, Clone, Default)]
pub struct AllowedHosts {
    names: Vec<String>,
    is_any: bool,
}

impl AllowedHosts {
    /// Accepts these names, on any port. `*` accepts all.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let names: Vec<_> = names
            .into_iter()
            .map(|name| name.to_ascii_lowercase())
            .collect();
        Self {
            is_any: names.iter().any(|name| name == "*"),
            names,
        }
    }

    /// Checks a name of this server: a host name or an address, or `*` for any.
    ///
    /// # Errors
    /// A text for the operator.
    pub fn parse_name(text: &str) -> Result<String, String> {
        let is_host = text
            .parse::<Authority>()
            .is_ok_and(|authority| authority.host() == text);
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
        let is_loopback = host == OWN_LOOPBACK_NAME || LOOPBACK_NAMES.contains(&host.as_str());
        is_plain && (self.is_any || is_loopback || self.names.contains(&host))
    }

    /// Whether a name is shared by all programs of this machine. Not if the operator has named it.
    pub(crate) fn is_shared(&self, host: &Authority) -> bool {
        let name = host.host().to_ascii_lowercase();
        LOOPBACK_NAMES.contains(&name.as_str()) && !self.names.contains(&name)
    }

    /// Whether a request was sent to an accepted name, and not by a page of another origin.
    fn accept_request(&self, request: &Request) -> bool {
        let host = host(request.uri(), request.headers());
        // The address of a socket can have a key. A page that leads to many wrong ones would lock
        // its visitor out.
        let is_link_to_socket = request.uri().path().starts_with(socket_io::PATH)
            && is_from_other_origin(request.headers())
            && is_navigation(request.headers());
        !is_link_to_socket
            && host.is_some_and(|host| self.accept(&host) && is_same_origin(request, &host))
    }
}

/// Returns the host that a request was sent to. `None` if it is not clear, because proxies could
/// choose another one of several.
pub(crate) fn host(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let mut named = headers.get_all(header::HOST).iter();
    let header = named
        .next()
        .map(|host| host.to_str().ok()?.parse::<Authority>().ok());
    let header = header.map(|host| host.filter(has_valid_port));
    match (uri.authority(), header, named.next()) {
        (None, Some(host), None) => host,
        (Some(uri), None, None) => Some(uri.clone()),
        (Some(uri), Some(host), None) => host.filter(|host| host == uri),
        _ => None,
    }
}

/// Whether what follows the host, if anything, is a port.
fn has_valid_port(authority: &Authority) -> bool {
    authority.as_str() == authority.host() || authority.port_u16().is_some()
}

/// Whether a request is not from a page of another origin than that of the host, except for a link
/// to the host.
pub(crate) fn is_same_origin(request: &Request, host: &Authority) -> bool {
    let headers = request.headers();
    let is_tls = Client::find(request.extensions()).is_some_and(|client| client.is_tls);
    let has_own_origin = headers
        .get_all(header::ORIGIN)
        .iter()
        .all(|origin| is_own(origin, host, is_tls));
    let is_link = is_navigation(headers) && [Method::GET, Method::HEAD].contains(request.method());
    has_own_origin && (!is_from_other_origin(headers) || is_link || is_web_socket(headers))
}

/// Whether an origin is that of the host. An encrypted request is not from a page that was not,
/// because anyone between could have written that page. A plain one may be from a page of HTTPS: a
/// proxy that is not trusted can have ended TLS.
fn is_own(origin: &HeaderValue, host: &Authority, is_tls: bool) -> bool {
    let origin = origin
        .to_str()
        .ok()
        .and_then(|origin| origin.split_once("://"));
    origin.is_some_and(|(scheme, authority)| {
        let has_scheme = scheme == "https" || (scheme == "http" && !is_tls);
        has_scheme && authority.eq_ignore_ascii_case(host.as_str())
    })
}

/// Whether a browser reports that a page of another origin has sent a request. `none` is the user,
/// who has entered the address.
fn is_from_other_origin(headers: &HeaderMap) -> bool {
    !headers
        .get_all(FETCH_SITE)
        .iter()
        .all(|site| site == "same-origin" || site == "none")
}

/// Whether a page sends a request, as far as browsers report it.
pub(crate) fn is_from_page(headers: &HeaderMap) -> bool {
    headers.contains_key(FETCH_SITE) || headers.contains_key(header::ORIGIN)
}

/// Whether a browser opens an address in a window or a frame, where a page of another origin cannot
/// read it.
fn is_navigation(headers: &HeaderMap) -> bool {
    headers
        .get(FETCH_MODE)
        .is_some_and(|mode| mode == "navigate")
}

/// Whether a page opens a WebSocket, which always has an `Origin`. To some browsers, its scheme
/// makes it another site than its page.
fn is_web_socket(headers: &HeaderMap) -> bool {
    headers
        .get(FETCH_MODE)
        .is_some_and(|mode| mode == "websocket")
        && headers.contains_key(header::ORIGIN)
}

/// Rejects requests to other names and from other origins.
pub(crate) async fn require_own_origin(
    State(state): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if state.allowed_hosts.accept_request(&request) {
        Ok(next.run(request).await)
    } else {
        Err(match host(request.uri(), request.headers()) {
            None => ApiError::NoHost,
            Some(host) if state.allowed_hosts.accept(&host) => ApiError::ForeignOrigin,
            Some(host) => ApiError::UnknownHost(host.host().to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(uri: &str, headers: &[(HeaderName, &str)]) -> Request {
        let request = Request::builder().uri(uri);
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(name.clone(), *value)
        });
        request.body(Body::empty()).unwrap()
    }

    fn accepts(host: &str, origin: Option<&str>) -> bool {
        let hosts = AllowedHosts::new(["Example.org".to_owned()]);
        let mut headers = vec![(header::HOST, host)];
        headers.extend(origin.map(|origin| (header::ORIGIN, origin)));
        hosts.accept_request(&request("/api", &headers))
    }

    #[test]
    fn page_that_is_not_encrypted_reaches_no_encrypted_server() {
        let host = Authority::from_static("example.org");
        let is_same = |origin, is_tls| is_own(&HeaderValue::from_static(origin), &host, is_tls);
        assert!(is_same("https://example.org", true) && !is_same("http://example.org", true));
        assert!(is_same("https://example.org", false) && is_same("http://example.org", false));
        assert!(!is_same("ftp://example.org", false) && !is_same("ws://example.org", true));
    }

    #[test]
    fn own_names_are_accepted_on_any_port() {
        for host in [
            "localhost",
            "localhost:3000",
            "127.0.0.1:1",
            "[::1]:80",
            "example.org",
            "EXAMPLE.org:8",
        ] {
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
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "",
            "a b",
            "10.0.0.1",
        ] {
            assert!(!accepts(host, None), "{host}");
        }
        for host in [
            "localhost:",
            "localhost:http",
            "localhost:99999",
            "[::1]:-1",
            "localhost:80:80",
        ] {
            assert!(!accepts(host, None), "{host}");
        }
        for origin in [
            "http://evil.example",
            "http://localhost:3001",
            "null",
            "",
            "http://localhost:3000@evil",
        ] {
            assert!(!accepts("localhost:3000", Some(origin)), "{origin}");
        }
    }

    #[test]
    fn request_to_two_hosts_is_rejected() {
        let hosts = AllowedHosts::new(["*".to_owned()]);
        let accepts = |uri: &str, names: &[&'static str]| {
            let headers: Vec<_> = names.iter().map(|name| (header::HOST, *name)).collect();
            hosts.accept_request(&request(uri, &headers))
        };
        assert!(accepts("/", &["a"]) && accepts("http://a/", &["a"]) && accepts("http://a/", &[]));
        assert!(
            !accepts("/", &["a", "b"])
                && !accepts("/", &["a", "a"])
                && !accepts("http://a/", &["b"])
        );
    }

    #[test]
    fn request_without_a_host_is_rejected() {
        assert!(!AllowedHosts::new(["*".to_owned()]).accept_request(&request("/", &[])));
    }

    #[test]
    fn every_origin_of_a_request_is_compared() {
        let host = Authority::from_static("localhost");
        let [own, other] =
            ["http://localhost", "http://evil.example"].map(|value| (header::ORIGIN, value));
        assert!(is_same_origin(
            &request("/", std::slice::from_ref(&own)),
            &host
        ));
        assert!(!is_same_origin(
            &request("/", &[own.clone(), other.clone()]),
            &host
        ));
        assert!(!is_same_origin(&request("/", &[other, own]), &host));
    }

    #[test]
    fn other_page_may_only_link_to_what_is_no_socket() {
        let accepts = |method: Method, path, site, mode, origin: Option<&'static str>| {
            let mut headers = vec![
                (header::HOST, "localhost"),
                (FETCH_SITE, site),
                (FETCH_MODE, mode),
            ];
            headers.extend(origin.map(|origin| (header::ORIGIN, origin)));
            let mut request = request(path, &headers);
            *request.method_mut() = method;
            AllowedHosts::default().accept_request(&request)
        };
        let (socket, own) = (
            "/socket.io/?session_api_key=wrong",
            Some("http://localhost"),
        );
        for site in ["cross-site", "same-site"] {
            assert!(accepts(Method::GET, "/", site, "navigate", None), "{site}");
            assert!(accepts(Method::HEAD, "/", site, "navigate", None), "{site}");
            assert!(!accepts(Method::POST, "/", site, "navigate", own), "{site}");
            assert!(
                !accepts(Method::GET, socket, site, "navigate", None),
                "{site}"
            );
            for mode in ["no-cors", "cors", "same-origin", "websocket", ""] {
                assert!(
                    !accepts(Method::GET, "/", site, mode, None),
                    "{site} {mode}"
                );
                assert!(
                    !accepts(Method::GET, socket, site, mode, None),
                    "{site} {mode}"
                );
            }
            assert!(
                accepts(Method::GET, socket, site, "websocket", own),
                "{site}"
            );
            assert!(
                !accepts(
                    Method::GET,
                    socket,
                    site,
                    "websocket",
                    Some("http://evil.example")
                ),
                "{site}"
            );
        }
        for site in ["same-origin", "none"] {
            for (path, mode) in [
                ("/", "no-cors"),
                ("/", "navigate"),
                (socket, "cors"),
                (socket, "websocket"),
            ] {
                assert!(
                    accepts(Method::GET, path, site, mode, None),
                    "{site} {mode}"
                );
            }
            assert!(
                accepts(Method::POST, "/sign-in", site, "navigate", own),
                "{site}"
            );
        }
    }
}
