//! What the operator allows beyond public addresses.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;
use reqwest::Url;

use super::{AddressKind, literal_address};

/// An exception from an [`AddressPolicy`](super::AddressPolicy), parsed from a network, an address
/// with or without a port, or a host name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressException {
    /// Every address of a network, of any kind: `10.20.0.0/16`, `127.0.0.1`, `fd12::/16`.
    Network(IpNet),
    /// One port of an address, of any kind: `127.0.0.1:11434`, `[fd12::1]:8080`. It counts for URLs
    /// with that address, not for names, because only the address of a name is checked when it is
    /// connected to.
    Socket(SocketAddr),
    /// The loopback and private addresses of a host name: `gitlab.internal`. Link-local addresses
    /// and metadata services are not included, so that the host's DNS cannot lead there.
    Host(String),
}

/// The error of an exception that is neither a network, an address nor a host name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot allow {0:?}: expected a network like 10.0.0.0/8, an address with or without a port, or a host name"
)]
pub struct InvalidException(String);

impl AddressException {
    /// `port` is the URL's. `None` for the address of a name.
    pub(super) fn allows(
        &self,
        host: &str,
        address: IpAddr,
        port: Option<u16>,
        kind: AddressKind,
    ) -> bool {
        match self {
            Self::Network(network) => network.contains(&address),
            Self::Socket(socket) => {
                port.is_some_and(|port| *socket == SocketAddr::new(address, port))
            }
            Self::Host(name) => {
                matches!(kind, AddressKind::Loopback | AddressKind::Private)
                    && host.trim_end_matches('.').eq_ignore_ascii_case(name)
            }
        }
    }
}

impl FromStr for AddressException {
    type Err = InvalidException;

    fn from_str(text: &str) -> Result<Self, InvalidException> {
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Self::Network(network));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Network(address.into()));
        }
        if let Ok(socket) = text.parse::<SocketAddr>() {
            return Ok(Self::Socket(socket));
        }
        let invalid = || InvalidException(text.to_owned());
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
        if text.is_empty() || !text.chars().all(is_name) {
            return Err(invalid());
        }
        let url = Url::parse(&format!("http://{text}/")).map_err(|_| invalid())?;
        match literal_address(&url) {
            Some(address) => Ok(Self::Network(address.into())),
            None => Ok(Self::Host(
                url.host_str()
                    .ok_or_else(invalid)?
                    .trim_end_matches('.')
                    .to_owned(),
            )),
        }
    }
}
