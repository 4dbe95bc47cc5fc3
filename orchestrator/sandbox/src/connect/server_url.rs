//! The address of a server that is reached over a network: `http` or `https`, a host, a port, perhaps a path before all
//! of its own.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, Scheme};

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    is_tls: bool,
    authority: Authority,
    /// Empty, or begins with `/` and does not end with one.
    prefix: String,
}

/// A text that is no such address, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the URL {text:?} {problem}: write http://HOST:PORT or https://HOST[:PORT][/PATH]")]
pub struct ServerUrlError {
    text: String,
    problem: &'static str,
}

impl ServerUrl {
    /// Whether it is reached over TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// The host's name or IP address, without brackets.
    pub(crate) fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    pub(crate) fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.is_tls { 443 } else { 80 })
    }

    /// Host and port as they stand in requests.
    pub(crate) fn authority(&self) -> &str {
        self.authority.as_str()
    }

    /// A path on this server, without scheme and host: `/sessions/a` behind its own prefix.
    pub(crate) fn path(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    /// A request's path and query on this server.
    pub(crate) fn at(&self, uri: &Uri) -> Uri {
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let scheme = if self.is_tls { Scheme::HTTPS } else { Scheme::HTTP };
        let whole = Uri::builder().scheme(scheme).authority(self.authority.clone());
        // Both parts were parsed before; what they make together is no longer than a server takes, or it says so.
        whole.path_and_query(self.path(path)).build().unwrap_or_default()
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.prefix)
    }
}

impl FromStr for ServerUrl {
    type Err = ServerUrlError;

    fn from_str(text: &str) -> Result<Self, ServerUrlError> {
        // Who wrote a password into it does not want to read it in an error.
        let shown = text.rsplit_once('@').map_or(text, |(_secret, rest)| rest);
        let refuse = |problem| ServerUrlError { text: shown.chars().take(256).collect(), problem };
        let uri: Uri = text.trim().parse().map_err(|_| refuse("cannot be read"))?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(refuse("begins with neither http:// nor https://")),
        };
        let authority = uri.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(|| refuse("names no host"))?.clone();
        if authority.as_str().contains('@') {
            return Err(refuse("holds a name or a password, which belongs into the key"));
        }
        if uri.query().is_some() {
            return Err(refuse("holds a query"));
        }
        Ok(Self { is_tls, authority, prefix: uri.path().trim_end_matches('/').to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::ServerUrl;

    #[test]
    fn an_address_is_taken_apart() {
        for (text, host, port, is_tls, at) in [
            ("http://10.0.0.7:8000", "10.0.0.7", 8000, false, "http://10.0.0.7:8000/v1/info?a=b"),
            ("https://box.example/", "box.example", 443, true, "https://box.example/v1/info?a=b"),
            ("https://box.example/a/b/", "box.example", 443, true, "https://box.example/a/b/v1/info?a=b"),
            ("http://[::1]:7", "::1", 7, false, "http://[::1]:7/v1/info?a=b"),
        ] {
            let url: ServerUrl = text.parse().unwrap();
            assert_eq!((url.host(), url.port(), url.is_tls()), (host, port, is_tls), "{text}");
            assert_eq!(url.at(&"http://sandbox/v1/info?a=b".parse().unwrap()), at);
            assert_eq!(url.to_string(), text.trim_end_matches('/'));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_password() {
        for text in
            ["", "box.example", "ftp://box", "https://", "http://a?b=c", "unix:///run/x", "http://u:secret@h"]
        {
            let error = text.parse::<ServerUrl>().unwrap_err().to_string();
            assert!(error.contains("https://HOST") && !error.contains("secret"), "{error}");
        }
    }
}
