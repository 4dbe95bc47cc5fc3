//! Who sent a request: the address of the client, and whether its connection is encrypted.
//!
//! The headers of a reverse proxy are believed only if the connection comes from a network that the
//! operator has named, because every other client could write them too.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{Extensions, HeaderMap, HeaderName};
use ipnet::IpNet;

use crate::other_hosts;
use crate::state::ServerState;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_SCHEME: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Networks of reverse proxies whose headers are believed. None by default.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Vec<IpNet>);

/// A network of reverse proxies, parsed from `10.0.0.0/8`, or from one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyNetwork(IpNet);

/// The error of a text that is neither a network nor an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a network such as 10.0.0.0/8, or an address")]
pub struct InvalidNetwork;

/// The error of a text that is no [`Client`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a client")]
pub(crate) struct InvalidClient;

/// The peer of a connection, which may be a proxy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// Whether this server has terminated TLS.
    pub(crate) is_tls: bool,
}

/// The client of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) address: IpAddr,
    /// Whether the client's connection is encrypted, up to this server or to its proxy.
    pub(crate) is_tls: bool,
}

impl FromStr for ProxyNetwork {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let address = || text.parse().ok().map(|address: IpAddr| address.into());
        text.parse()
            .ok()
            .or_else(address)
            .map(Self)
            .ok_or(InvalidNetwork)
    }
}

impl TrustedProxies {
    /// Trusts the proxies in these networks.
    pub fn new(networks: impl IntoIterator<Item = ProxyNetwork>) -> Self {
        Self(networks.into_iter().map(|network| network.0).collect())
    }

    /// Whether an address is that of a proxy.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Returns the client of a request: the last address that no trusted proxy has.
    fn find_client(&self, peer: Peer, headers: &HeaderMap) -> Client {
        let own = Client {
            address: peer.address.ip().to_canonical(),
            is_tls: peer.is_tls,
        };
        if !self.contains(own.address) {
            return own;
        }
        // Each proxy appends the address of its peer, so only the end of the list is known to be
        // true.
        let mut address = own.address;
        for forwarded in values(headers, &FORWARDED_FOR).into_iter().rev() {
            let Some(forwarded) = parse_address(forwarded) else {
                break;
            };
            address = forwarded;
            if !self.contains(address) {
                break;
            }
        }
        let is_tls = match values(headers, &FORWARDED_SCHEME).last() {
            Some(scheme) => ["https", "wss"]
                .iter()
                .any(|name| scheme.eq_ignore_ascii_case(name)),
            None => own.is_tls,
        };
        Client { address, is_tls }
    }
}

impl Client {
    /// Returns the client of a request. `None` outside of [`identify`].
    pub(crate) fn find(extensions: &Extensions) -> Option<Self> {
        extensions.get().copied()
    }
}

/// As `192.0.2.1 https`, for other hosts.
impl fmt::Display for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} {}",
            self.address,
            if self.is_tls { "https" } else { "http" }
        )
    }
}

impl FromStr for Client {
    type Err = InvalidClient;

    fn from_str(text: &str) -> Result<Self, InvalidClient> {
        let (address, scheme) = text.split_once(' ').ok_or(InvalidClient)?;
        let address = address.parse().map_err(|_| InvalidClient)?;
        match scheme {
            "http" => Ok(Self {
                address,
                is_tls: false,
            }),
            "https" => Ok(Self {
                address,
                is_tls: true,
            }),
            _ => Err(InvalidClient),
        }
    }
}

/// Adds the [`Client`] to a request whose connection has a [`Peer`].
pub(crate) async fn identify(
    State(state): State<Arc<ServerState>>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Some(peer) = request.extensions().get::<Peer>().copied() {
        let forwarded = other_hosts::forwarded_client(&state, request.headers());
        let client =
            forwarded.unwrap_or_else(|| state.trusted_proxies.find_client(peer, request.headers()));
        request.extensions_mut().insert(client);
    }
    next.run(request).await
}

/// Returns the values of a header that is a list, in the order in which they were added.
fn values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a str> {
    let lists = headers
        .get_all(name)
        .iter()
        .map(|list| list.to_str().unwrap_or_default());
    lists
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .collect()
}

/// Parses an address with or without a port.
fn parse_address(text: &str) -> Option<IpAddr> {
    let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let address: Option<IpAddr> = text.parse().ok().or_else(with_port).or_else(bracketed);
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn find(peer: &str, headers: &[(HeaderName, &'static str)]) -> (String, bool) {
        let proxies =
            TrustedProxies::new(["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap()));
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        let headers = headers.collect();
        let peer = Peer {
            address: SocketAddr::new(peer.parse().unwrap(), 1),
            is_tls: false,
        };
        let client = proxies.find_client(peer, &headers);
        (client.address.to_string(), client.is_tls)
    }

    #[test]
    fn headers_of_unknown_peers_are_ignored() {
        let headers = [(FORWARDED_FOR, "1.2.3.4"), (FORWARDED_SCHEME, "https")];
        assert_eq!(find("192.0.2.1", &headers), ("192.0.2.1".to_owned(), false));
        assert_eq!(
            find("::ffff:192.0.2.1", &headers),
            ("192.0.2.1".to_owned(), false)
        );
    }

    #[test]
    fn client_is_the_last_address_before_the_proxies() {
        for (forwarded, expected) in [
            (&["1.2.3.4"][..], "1.2.3.4"),
            (&["6.6.6.6, 1.2.3.4"], "1.2.3.4"),
            (&["6.6.6.6, 1.2.3.4, 10.0.0.2"], "1.2.3.4"),
            (&["6.6.6.6", "1.2.3.4:567", "fd00::1"], "1.2.3.4"),
            (&["[2001:db8::1]:80"], "2001:db8::1"),
            (&["[2001:db8::1]"], "2001:db8::1"),
            (&["::ffff:1.2.3.4"], "1.2.3.4"),
            // What stands before something unreadable may be forged.
            (&["1.2.3.4, unknown"], "10.0.0.1"),
            (&["1.2.3.4, , 10.0.0.2"], "10.0.0.2"),
            (&["10.0.0.3"], "10.0.0.3"),
            (&[], "10.0.0.1"),
        ] {
            let headers: Vec<_> = forwarded
                .iter()
                .map(|value| (FORWARDED_FOR, *value))
                .collect();
            assert_eq!(find("10.0.0.1", &headers).0, expected, "{forwarded:?}");
        }
    }

    #[test]
    fn client_is_parsed_from_its_text() {
        for text in ["192.0.2.1 https", "2001:db8::1 http"] {
            assert_eq!(
                text.parse::<Client>()
                    .map(|client| client.to_string())
                    .as_deref(),
                Ok(text)
            );
        }
        for text in ["", "192.0.2.1", "192.0.2.1 ftp", "1 https"] {
            assert!(text.parse::<Client>().is_err(), "{text}");
        }
    }

    #[test]
    fn scheme_is_that_of_the_nearest_proxy() {
        for (scheme, expected) in [
            ("https", true),
            ("WSS", true),
            ("http", false),
            ("https, http", false),
        ] {
            assert_eq!(
                find("10.0.0.1", &[(FORWARDED_SCHEME, scheme)]).1,
                expected,
                "{scheme}"
            );
        }
        assert!(!find("10.0.0.1", &[]).1);
    }
}
