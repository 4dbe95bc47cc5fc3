//! Headers of what is forwarded to a port, and of its responses.

use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::access::PORT_COOKIE;
use crate::auth::KEY_HEADER;
use crate::cookies::{self, HOST_SESSION_COOKIE, SESSION_COOKIE};
use crate::other_hosts::FORWARDED;
use crate::proxy::remove_connection;

/// Our cookies, which a program neither gets nor sets.
const OWN_COOKIES: [&str; 3] = [SESSION_COOKIE, HOST_SESSION_COOKIE, PORT_COOKIE];

/// Replaces the headers of a request. The program sees itself as a server on its own machine, and
/// none of our keys. `has_own_token` is whether a bearer token is a key of ours.
pub(super) fn to_program(
    headers: &mut HeaderMap,
    port: u16,
    scheme: &str,
    host: &Authority,
    has_own_token: bool,
) {
    if has_own_token {
        headers.remove(header::AUTHORIZATION);
    }
    headers.remove(KEY_HEADER);
    headers.remove(header::PROXY_AUTHORIZATION);
    cookies::remove(headers, &OWN_COOKIES);
    remove_connection(headers);
    let local = format!("localhost:{port}");
    // It has been compared with the host.
    if headers.contains_key(header::ORIGIN) {
        set(headers, header::ORIGIN, &format!("http://{local}"));
    }
    set(headers, header::HOST, &local);
    set(
        headers,
        HeaderName::from_static("x-forwarded-host"),
        host.as_str(),
    );
    set(
        headers,
        HeaderName::from_static("x-forwarded-proto"),
        scheme,
    );
    headers.remove("x-forwarded-for");
    headers.remove(FORWARDED);
    headers.remove(header::FORWARDED);
}

/// Replaces the headers of a response. The program affects no other host.
pub(super) fn from_program(headers: &mut HeaderMap, port: u16, scheme: &str, host: &Authority) {
    remove_connection(headers);
    // They would be for the hosts above too.
    for name in [
        header::ALT_SVC,
        HeaderName::from_static("clear-site-data"),
        header::STRICT_TRANSPORT_SECURITY,
    ] {
        headers.remove(name);
    }
    let cookies: Vec<_> = headers
        .get_all(header::SET_COOKIE)
        .iter()
        .filter(|cookie| is_own_cookie(cookie))
        .cloned()
        .collect();
    headers.remove(header::SET_COOKIE);
    for cookie in cookies {
        headers.append(header::SET_COOKIE, cookie);
    }
    let location = headers
        .get(header::LOCATION)
        .and_then(|location| location.to_str().ok());
    let path =
        location.and_then(|location| location.strip_prefix(&format!("http://localhost:{port}")));
    // Else it is another port or host, such as http://localhost:8000 or
    // http://localhost:80.example.org for port 80.
    let path = path.filter(|path| path.is_empty() || path.starts_with(['/', '?', '#']));
    if let Some(location) = path.map(|path| format!("{scheme}://{host}{path}")) {
        set(headers, header::LOCATION, &location);
    }
}

/// Whether a cookie is for the program's host alone, and not one of ours.
fn is_own_cookie(cookie: &HeaderValue) -> bool {
    let Ok(cookie) = cookie.to_str() else {
        return false;
    };
    let mut parts = cookie
        .split(';')
        .map(|part| part.split('=').next().unwrap_or_default().trim());
    let name = parts.next().unwrap_or_default();
    !OWN_COOKIES.contains(&name) && !parts.any(|attribute| attribute.eq_ignore_ascii_case("domain"))
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // All values are made of host names, ports and paths that were headers.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn program_sees_no_key_and_its_own_host() {
        let host = Authority::from_static("80-a.localhost:3000");
        let mut request = headers(&[
            ("host", "80-a.localhost:3000"),
            ("origin", "http://80-a.localhost:3000"),
            ("x-session-api-key", "secret"),
            ("authorization", "Bearer secret"),
            ("authorization", "Basic other"),
            ("proxy-authorization", "Bearer secret"),
            (
                "cookie",
                "glovebox-session=1; theme=dark; glovebox-port=2; __Host-glovebox-session=3",
            ),
            ("connection", "keep-alive, x-hop"),
            ("x-hop", "1"),
            ("x-forwarded-for", "1.2.3.4"),
            ("accept", "*/*"),
        ]);
        to_program(&mut request, 80, "http", &host, true);
        let expected = headers(&[
            ("host", "localhost:80"),
            ("origin", "http://localhost:80"),
            ("cookie", "theme=dark"),
            ("accept", "*/*"),
            ("x-forwarded-host", "80-a.localhost:3000"),
            ("x-forwarded-proto", "http"),
        ]);
        assert_eq!(request, expected);
        let mut request = headers(&[("authorization", "Bearer other")]);
        to_program(&mut request, 80, "http", &host, false);
        assert_eq!(request["authorization"], "Bearer other");
    }

    #[test]
    fn program_changes_no_other_host() {
        let host = Authority::from_static("80-a.example.org");
        let mut response = headers(&[
            ("set-cookie", "a=1; Path=/"),
            ("set-cookie", "b=1; domain=example.org"),
            ("set-cookie", "glovebox-session=forged"),
            ("set-cookie", "c=2"),
            ("location", "http://localhost:80/next?a"),
            ("alt-svc", "h3=\"evil.example:443\""),
            ("clear-site-data", "\"cookies\""),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
        ]);
        from_program(&mut response, 80, "https", &host);
        let expected = headers(&[
            ("set-cookie", "a=1; Path=/"),
            ("set-cookie", "c=2"),
            ("location", "https://80-a.example.org/next?a"),
        ]);
        assert_eq!(response, expected);
        let mut sized = headers(&[("content-length", "5")]);
        from_program(&mut sized, 80, "https", &host);
        assert_eq!(sized["content-length"], "5");
    }

    #[test]
    fn only_the_address_of_the_port_is_replaced() {
        let host = Authority::from_static("80-a.example.org");
        let replaced = |location: &str| {
            let mut response = HeaderMap::new();
            set(&mut response, header::LOCATION, location);
            from_program(&mut response, 80, "https", &host);
            response["location"].to_str().unwrap().to_owned()
        };
        for path in ["", "/next", "?a", "#a"] {
            let location = format!("http://localhost:80{path}");
            assert_eq!(
                replaced(&location),
                format!("https://80-a.example.org{path}")
            );
        }
        for elsewhere in [
            "https://example.com/",
            "http://localhost:8000/",
            "http://localhost:80.evil.example/",
            "http://localhost:80@evil.example/",
            "/next",
        ] {
            assert_eq!(replaced(elsewhere), elsewhere);
        }
    }
}
