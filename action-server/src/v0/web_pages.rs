//! Keeps web pages out where there is no key: a browser on this machine reaches this server, and a page in it may send
//! what it likes, or have its own name lead here and read the answers too. V0's clients are no browsers.

use std::net::IpAddr;

use axum::http::Request;
use axum::http::header::{HOST, ORIGIN};

use crate::api::Api;

/// Whether a page may have sent it and nothing else keeps that out: no key is needed.
pub(crate) fn is_from_web_page<B>(api: &Api, request: &Request<B>) -> bool {
    let is_named = request.headers().get(HOST).map(|host| host.to_str().is_ok_and(is_this_machine));
    let is_named = is_named.or_else(|| request.uri().authority().map(|host| is_this_machine(host.as_str())));
    api.key().is_none() && (request.headers().contains_key(ORIGIN) || is_named == Some(false))
}

/// A host, perhaps with a port, that names this machine and nothing else.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(address) => address.split(']').next(),
        None => host.split(':').next(),
    };
    name.is_some_and(|name| {
        name.eq_ignore_ascii_case("localhost")
            || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use super::is_this_machine;

    #[test]
    fn only_names_that_nobody_else_can_have() {
        assert!(
            ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.9:80", "[::1]:80"]
                .into_iter()
                .all(is_this_machine)
        );
        assert!(
            !["evil.com", "localhost.evil.com:80", "127.0.0.1.evil.com", "10.0.0.1", "", "[::2]"]
                .into_iter()
                .any(is_this_machine)
        );
    }
}
