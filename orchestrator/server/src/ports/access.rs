//! Who may use a port: a link with a token gives a browser a cookie, which is valid for that port
//! only.

use std::time::Duration;

use accounts::Credential;
use cookie::{Cookie, SameSite};
use http::{HeaderMap, Uri};

use super::host::{PortHosts, SandboxPort};
use crate::cookies;
use crate::signature::TimedSignatures;

/// Time for which a link stays the same: V0's page loads its frame again when the link changes. It
/// is valid for one to two of these.
const TOKEN_PERIOD: Duration = Duration::from_hours(1);

/// Lifetime of the cookie that a link gives.
const COOKIE_LIFETIME: Duration = Duration::from_hours(12);

/// Parameter of the token in a link.
const TOKEN_PARAMETER: &str = "glovebox-token";

/// The cookie of a port.
pub(super) const PORT_COOKIE: &str = "glovebox-port";

/// What links and cookies are signed for.
const LINK: &str = "link";
const COOKIE: &str = "cookie";

/// Signs links and cookies of ports.
pub(super) struct PortAccess<'a> {
    pub(super) signatures: &'a TimedSignatures,
    pub(super) target: &'a SandboxPort,
}

impl PortAccess<'_> {
    /// Returns a link to the port for the caller with this credential. `None` if it has no host
    /// name.
    pub(super) fn link(&self, hosts: &PortHosts, credential: &Credential) -> Option<String> {
        let signature = self
            .signatures
            .sign_for_period(&self.purpose(LINK, &credential.to_string()), TOKEN_PERIOD);
        let token = format!("{credential}.{signature}");
        Some(format!(
            "{}/?{TOKEN_PARAMETER}={token}",
            hosts.url(self.target)?
        ))
    }

    /// Returns the credential whose caller got the cookie of the port. `None` if the headers have
    /// no valid one.
    pub(super) fn accept_cookie(&self, headers: &HeaderMap) -> Option<Credential> {
        cookies::named(headers, PORT_COOKIE).find_map(|cookie| self.verify(COOKIE, cookie.value()))
    }

    /// Returns the cookie of the port for the caller with this credential.
    pub(super) fn cookie(&self, hosts: &PortHosts, credential: &Credential) -> Cookie<'static> {
        let value = self.sign(COOKIE, credential, COOKIE_LIFETIME);
        let cookie = cookies::build(PORT_COOKIE, value, COOKIE_LIFETIME);
        if !hosts.is_secure() {
            return cookie.build();
        }
        // A page of the server shows the port in a frame, which is of another site. Only such a
        // frame has its cookie then.
        cookie
            .secure(true)
            .same_site(SameSite::None)
            .partitioned(true)
            .build()
    }

    /// Returns path and query without the token, and the credential whose caller got the link.
    /// `None` without a valid token. V0's page appends a slash to a link, and so to the token.
    pub(super) fn accept_token(&self, uri: &Uri) -> Option<(String, Credential)> {
        let (tokens, path) = split_tokens(uri)?;
        let credential = tokens
            .iter()
            .find_map(|token| self.verify(LINK, token.trim_end_matches('/')))?;
        Some((path, credential))
    }

    /// Returns the credential whose caller got the link, which may have expired as long as its
    /// cookie has not.
    pub(super) fn accept_probe(&self, uri: &Uri) -> Option<Credential> {
        form_urlencoded::parse(uri.query()?.as_bytes())
            .filter(|(name, _)| name == TOKEN_PARAMETER)
            .find_map(|(_, token)| {
                self.verify_within(LINK, token.trim_end_matches('/'), COOKIE_LIFETIME)
            })
    }

    /// Signs access for a credential. It is valid only as long as the credential is, which the
    /// caller of this module checks.
    fn sign(&self, kind: &str, credential: &Credential, lifetime: Duration) -> String {
        let credential = credential.to_string();
        format!(
            "{credential}.{}",
            self.signatures
                .sign(&self.purpose(kind, &credential), lifetime)
        )
    }

    fn verify(&self, kind: &str, token: &str) -> Option<Credential> {
        self.verify_within(kind, token, Duration::ZERO)
    }

    fn verify_within(&self, kind: &str, token: &str, within: Duration) -> Option<Credential> {
        let (credential, signature) = token.split_once('.')?;
        let was_valid =
            self.signatures
                .was_valid(&self.purpose(kind, credential), signature, within);
        was_valid.then(|| credential.parse().ok())?
    }

    fn purpose(&self, kind: &str, credential: &str) -> String {
        let SandboxPort { conversation, port } = self.target;
        format!("{kind} of {credential} to port {port} of {conversation}")
    }
}

/// Returns the tokens of an address, and its path and query without them. `None` if it has no
/// token.
pub(super) fn split_tokens(uri: &Uri) -> Option<(Vec<String>, String)> {
    let pairs = form_urlencoded::parse(uri.query()?.as_bytes());
    let (tokens, rest): (Vec<_>, Vec<_>) = pairs.partition(|(name, _)| name == TOKEN_PARAMETER);
    if tokens.is_empty() {
        return None;
    }
    let rest = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(rest)
        .finish();
    let separator = if rest.is_empty() { "" } else { "?" };
    // One slash: two would lead to another host.
    let path = format!("/{}{separator}{rest}", uri.path().trim_start_matches('/'));
    Some((
        tokens
            .into_iter()
            .map(|(_, token)| token.into_owned())
            .collect(),
        path,
    ))
}

#[cfg(test)]
mod tests {
    use http::header;
    use secrecy::SecretString;

    use super::*;

    #[test]
    fn link_and_cookie_are_valid_for_their_port_only() {
        let signatures = TimedSignatures::new(&SecretString::from("key"));
        let [own, other] = [80, 81].map(|port| SandboxPort {
            conversation: "a".parse().unwrap(),
            port,
        });
        let [own, other] = [&own, &other].map(|target| PortAccess {
            signatures: &signatures,
            target,
        });
        let hosts = PortHosts::localhost(false, 3000);
        let credential = Credential::Key("0123456789ab".parse().unwrap());
        let link: Uri = own.link(&hosts, &credential).unwrap().parse().unwrap();
        assert_eq!(
            own.accept_token(&link),
            Some(("/".to_owned(), credential.clone()))
        );
        assert_eq!(
            own.link(&hosts, &credential).unwrap(),
            link.to_string(),
            "it does not change with each request"
        );
        assert_eq!(other.accept_token(&link), None);
        let of_page: Uri = format!("{link}/").parse().unwrap();
        assert_eq!(
            own.accept_token(&of_page),
            Some(("/".to_owned(), credential.clone()))
        );
        let more: Uri = format!("//evil.example/a?x=1&{}&y=%26", link.query().unwrap())
            .parse()
            .unwrap();
        assert_eq!(
            own.accept_token(&more).unwrap().0,
            "/evil.example/a?x=1&y=%26"
        );
        let cookie = own.cookie(&hosts, &credential).stripped().to_string();
        let headers =
            |cookie: &str| HeaderMap::from_iter([(header::COOKIE, cookie.parse().unwrap())]);
        assert_eq!(
            own.accept_cookie(&headers(&cookie)),
            Some(credential.clone())
        );
        assert_eq!(other.accept_cookie(&headers(&cookie)), None);
        // The signature is of this key.
        let forged = cookie.replace(&credential.to_string(), "operator");
        assert_eq!(own.accept_cookie(&headers(&forged)), None);
        // A link is no cookie.
        let token = link.query().unwrap().split_once('=').unwrap().1;
        assert_eq!(
            own.accept_cookie(&headers(&format!("{PORT_COOKIE}={token}"))),
            None
        );
    }
}
