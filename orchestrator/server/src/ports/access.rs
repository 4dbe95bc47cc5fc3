//! Who may use a port: a link with a token gives a browser a cookie, which is valid for that port only.

use std::time::Duration;

use cookie::{Cookie, SameSite};
use http::{HeaderMap, Uri};

use super::host::{PortHosts, SandboxPort};
use crate::cookies;
use crate::signature::TimedSignatures;

/// Lifetime of a link.
const TOKEN_LIFETIME: Duration = Duration::from_mins(10);

/// Lifetime of the cookie that a link gives.
const COOKIE_LIFETIME: Duration = Duration::from_hours(12);

/// Parameter of the token in a link.
const TOKEN_PARAMETER: &str = "glovebox-token";

/// The cookie of a port.
pub(super) const PORT_COOKIE: &str = "glovebox-port";

/// Signs links and cookies of ports.
pub(super) struct PortAccess<'a> {
    pub(super) signatures: &'a TimedSignatures,
    pub(super) target: &'a SandboxPort,
}

impl PortAccess<'_> {
    /// Returns a link to the port. `None` if it has no host name.
    pub(super) fn link(&self, hosts: &PortHosts) -> Option<String> {
        let token = self.signatures.sign(&self.purpose("link"), TOKEN_LIFETIME);
        Some(format!("{}/?{TOKEN_PARAMETER}={token}", hosts.url(self.target)?))
    }

    /// Whether the headers have the cookie of the port.
    pub(super) fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let purpose = self.purpose("cookie");
        cookies::named(headers, PORT_COOKIE).any(|cookie| self.signatures.is_valid(&purpose, cookie.value()))
    }

    /// Returns the cookie of the port.
    pub(super) fn cookie(&self, hosts: &PortHosts) -> Cookie<'static> {
        let value = self.signatures.sign(&self.purpose("cookie"), COOKIE_LIFETIME);
        let cookie = cookies::build(PORT_COOKIE, value, COOKIE_LIFETIME);
        if !hosts.is_secure() {
            return cookie.build();
        }
        // A page of the server shows the port in a frame, which is of another site. Only such a frame has its cookie then.
        cookie.secure(true).same_site(SameSite::None).partitioned(true).build()
    }

    /// Returns path and query without the token if they have a valid one.
    pub(super) fn accept_token(&self, uri: &Uri) -> Option<String> {
        let purpose = self.purpose("link");
        let pairs: Vec<_> = form_urlencoded::parse(uri.query()?.as_bytes()).collect();
        let is_token = |name: &str| name == TOKEN_PARAMETER;
        pairs.iter().find(|(name, value)| is_token(name) && self.signatures.is_valid(&purpose, value))?;
        let rest = pairs.iter().filter(|(name, _)| !is_token(name));
        let rest = form_urlencoded::Serializer::new(String::new()).extend_pairs(rest).finish();
        let separator = if rest.is_empty() { "" } else { "?" };
        // One slash: two would lead to another host.
        Some(format!("/{}{separator}{rest}", uri.path().trim_start_matches('/')))
    }

    fn purpose(&self, kind: &str) -> String {
        format!("{kind} of port {} of {}", self.target.port, self.target.conversation)
    }
}

#[cfg(test)]
mod tests {
    use http::header;
    use secrecy::SecretString;

    use super::*;

    #[test]
    fn link_and_cookie_are_valid_for_their_port_only() {
        let signatures = TimedSignatures::new(&SecretString::from("key"));
        let [own, other] = [80, 81].map(|port| SandboxPort { conversation: "a".parse().unwrap(), port });
        let [own, other] = [&own, &other].map(|target| PortAccess { signatures: &signatures, target });
        let hosts = PortHosts::localhost(3000);
        let link: Uri = own.link(&hosts).unwrap().parse().unwrap();
        assert_eq!(own.accept_token(&link).as_deref(), Some("/"));
        assert_eq!(other.accept_token(&link), None);
        let more: Uri = format!("//evil.example/a?x=1&{}&y=%26", link.query().unwrap()).parse().unwrap();
        assert_eq!(own.accept_token(&more).as_deref(), Some("/evil.example/a?x=1&y=%26"));
        let cookie = own.cookie(&hosts).stripped().to_string();
        let headers = HeaderMap::from_iter([(header::COOKIE, cookie.parse().unwrap())]);
        assert!(own.has_cookie(&headers) && !other.has_cookie(&headers));
        // A link is no cookie.
        let token = link.query().unwrap().split_once('=').unwrap().1;
        let headers = format!("{PORT_COOKIE}={token}").parse().unwrap();
        assert!(!own.has_cookie(&HeaderMap::from_iter([(header::COOKIE, headers)])));
    }
}
