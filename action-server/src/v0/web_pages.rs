//! Rejects requests of web pages if no key is set. A page in a browser on this machine can send
//! requests to this server, or make its own host name resolve to it (DNS rebinding) and read the
//! responses. V0's clients are not browsers.

use std::net::IpAddr;

use axum::http::Request;
use axum::http::header::{HOST, ORIGIN};

use crate::api::Api;

/// Returns whether a web page may have sent the request, and no key is required.
pub(crate) fn is_from_web_page<B>(api: &Api, request: &Request<B>) -> bool {
    let is_named = request
        .headers()
        .get(HOST)
        .map(|host| host.to_str().is_ok_and(is_this_machine));
    let is_named = is_named.or_else(|| {
        request
            .uri()
            .authority()
            .map(|host| is_this_machine(host.as_str()))
    });
    api.key().is_none() && (request.headers().contains_key(ORIGIN) || is_named == Some(false))
}

/// Returns whether a host, with or without a port, can only refer to this machine.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(address) => address.split(']').next(),
        None => host.split(':').next(),
    };
    name.is_some_and(|name| {
        name.eq_ignore_ascii_case("localhost")
            || name
                .parse()
                .is_ok_and(|address: IpAddr| address.is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use super::is_this_machine;

    #[test]
    fn only_local_names_and_addresses_are_this_machine() {
        assert!(
            [
                "localhost",
                "LOCALHOST:1",
                "127.0.0.1",
                "127.0.0.9:80",
                "[::1]:80"
            ]
            .into_iter()
            .all(is_this_machine)
        );
        assert!(
            ![
                "evil.com",
                "localhost.evil.com:80",
                "127.0.0.1.evil.com",
                "10.0.0.1",
                "",
                "[::2]"
            ]
            .into_iter()
            .any(is_this_machine)
        );
    }
}
