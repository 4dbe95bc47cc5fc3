//! Guard against server-side request forgery: which addresses a client may connect to when a user
//! supplies the URL.
//!
//! Only public addresses are allowed, except those that the operator names. Names are checked when
//! a connection is opened, on the addresses that it is opened to: an earlier look-up would not
//! hold, because the next one can return something else. The resolver is not called for literal
//! addresses, so [`AddressPolicy::check_url`] must be called for every URL.
//!
//! ```
//! use git_providers::{AddressPolicy, AddressKind};
//!
//! let policy = AddressPolicy::new(["10.20.0.0/16".parse()?, "gitlab.internal".parse()?]);
//! let url = "http://0x7f.1/".parse()?;
//! assert_eq!(policy.check_url(&url).unwrap_err().kind, AddressKind::Loopback);
//! let client = policy.guard(reqwest::Client::builder()); // then its TLS, timeouts and `build`
//! # let _ = client;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod exception;
mod kind;
mod resolver;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use reqwest::dns::Resolve;
use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, Url};

pub use exception::{AddressException, InvalidException};
pub use kind::AddressKind;
pub use resolver::{AddressResolver, SystemResolver};

/// Maximum number of redirects of a request, for example to a path with a trailing slash.
const MAX_REDIRECTS: usize = 3;

/// Decides which addresses may be connected to. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct AddressPolicy {
    exceptions: Arc<[AddressException]>,
}

/// The error of a connection that is not allowed. A retry fails again.
///
/// The text does not contain the address: it would disclose the names of a private network to
/// users.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot connect to {host}: its address is {kind}, which the operator has not allowed")]
pub struct RefusedAddress {
    /// The host of the URL.
    pub host: String,
    /// The address that is refused.
    pub address: IpAddr,
    /// Why it is refused.
    pub kind: AddressKind,
}

impl AddressPolicy {
    /// Creates a policy that allows public addresses and these exceptions. The default has none.
    pub fn new(exceptions: impl IntoIterator<Item = AddressException>) -> Self {
        Self {
            exceptions: exceptions.into_iter().collect(),
        }
    }

    /// Checks the host of a URL if it is an address, in any spelling that [`Url`] accepts. Resolves
    /// no names.
    ///
    /// # Errors
    /// The host is an address that is not allowed.
    pub fn check_url(&self, url: &Url) -> Result<(), RefusedAddress> {
        match literal_address(url) {
            Some(address) => self.check(
                url.host_str().unwrap_or_default(),
                address,
                url.port_or_known_default(),
            ),
            None => Ok(()),
        }
    }

    /// Checks an address of a host that is a name.
    ///
    /// # Errors
    /// The address is not allowed.
    pub fn check_address(&self, host: &str, address: IpAddr) -> Result<(), RefusedAddress> {
        self.check(host, address, None)
    }

    fn check(&self, host: &str, address: IpAddr, port: Option<u16>) -> Result<(), RefusedAddress> {
        let kind = AddressKind::classify(address);
        let address_on_wire = kind::routed_address(address);
        let is_allowed = kind == AddressKind::Public
            || self
                .exceptions
                .iter()
                .any(|exception| exception.allows(host, address_on_wire, port, kind));
        if is_allowed {
            Ok(())
        } else {
            Err(RefusedAddress {
                host: host.to_owned(),
                address,
                kind,
            })
        }
    }

    /// Configures a client: it resolves names with [`AddressResolver`], and follows redirects
    /// within an origin only.
    ///
    /// The client uses no proxy of the environment. A proxy resolves names itself, where they
    /// cannot be checked.
    pub fn guard(&self, client: ClientBuilder) -> ClientBuilder {
        self.guard_with(client, SystemResolver)
    }

    /// Like [`guard`](Self::guard), with another source of addresses than the operating system.
    pub fn guard_with(
        &self,
        client: ClientBuilder,
        source: impl Resolve + 'static,
    ) -> ClientBuilder {
        client
            .dns_resolver(AddressResolver::new(self.clone(), source))
            .no_proxy()
            .redirect(same_origin_redirects())
    }
}

/// Returns a policy that stops at a redirect to another origin. The response is then the redirect
/// itself.
fn same_origin_redirects() -> Policy {
    Policy::custom(|attempt| {
        let is_same = attempt
            .previous()
            .iter()
            .all(|previous| is_same_origin(previous, attempt.url()));
        if is_same && attempt.previous().len() <= MAX_REDIRECTS {
            attempt.follow()
        } else {
            attempt.stop()
        }
    })
}

/// Whether both URLs have the same scheme, host and port.
pub(crate) fn is_same_origin(one: &Url, other: &Url) -> bool {
    one.scheme() == other.scheme()
        && one.host_str() == other.host_str()
        && one.port_or_known_default() == other.port_or_known_default()
}

/// Returns the host if it is an address. `Url` has normalized decimal, octal, hexadecimal and
/// shortened spellings.
fn literal_address(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_matches(['[', ']']).parse().ok()
}
