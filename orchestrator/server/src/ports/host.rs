//! The host names of ports in sandboxes.

use http::Uri;
use http::uri::Authority;
use protocol::ConversationId;

/// The addresses of ports in sandboxes. Each port has a host name, and thus an origin, of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortHosts {
    scheme: String,
    /// The host name behind `{port}-{conversation}`, with its first dot.
    suffix: String,
    port: Option<u16>,
}

/// A port in the sandbox of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SandboxPort {
    pub(crate) conversation: ConversationId,
    pub(crate) port: u16,
}

impl PortHosts {
    /// The names below `localhost`, which browsers resolve to their own machine, at a port of this
    /// server. `is_tls` is whether the server has a certificate.
    pub fn localhost(is_tls: bool, port: u16) -> Self {
        let scheme = if is_tls { "https" } else { "http" };
        Self {
            scheme: scheme.to_owned(),
            suffix: ".localhost".to_owned(),
            port: Some(port),
        }
    }

    /// Parses a URL in which `*` stands for `{port}-{conversation}`, such as
    /// `https://*.sandboxes.example.org`.
    ///
    /// # Errors
    /// What is expected.
    pub fn parse(url: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected a URL such as https://*.sandboxes.example.org";
        let (scheme, rest) = url.split_once("://*").ok_or(EXPECTED)?;
        let authority: Authority = rest
            .strip_suffix('/')
            .unwrap_or(rest)
            .strip_prefix('.')
            .ok_or(EXPECTED)?
            .parse()
            .map_err(|_| EXPECTED)?;
        if !["http", "https"].contains(&scheme) || authority.as_str().contains('@') {
            return Err(EXPECTED.to_owned());
        }
        let suffix = format!(".{}", authority.host().to_ascii_lowercase());
        Ok(Self {
            scheme: scheme.to_owned(),
            suffix,
            port: authority.port_u16(),
        })
    }

    /// Returns the origins of all ports, as a source of a Content Security Policy.
    pub(crate) fn to_source(&self) -> String {
        let Self {
            scheme,
            suffix,
            port,
        } = self;
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("{scheme}://*{suffix}{port}")
    }

    /// The scheme with which browsers reach the ports.
    pub(super) fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Whether browsers accept secure cookies at these addresses.
    pub(super) fn is_secure(&self) -> bool {
        self.scheme == "https" || self.suffix == ".localhost"
    }

    /// Returns the port that a host name is for. Ignores the port of the authority, which a proxy
    /// may change.
    pub(crate) fn find(&self, authority: &Authority) -> Option<SandboxPort> {
        let host = authority.host().to_ascii_lowercase();
        let (port, conversation) = host.strip_suffix(&self.suffix)?.split_once('-')?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        // Further dots would be other names.
        let is_label = conversation
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_label {
            return None;
        }
        Some(SandboxPort {
            conversation: conversation.parse().ok()?,
            port,
        })
    }

    /// Returns the URL of a port, without a path. `None` if the id of the conversation cannot be in
    /// a host name.
    pub(super) fn url(&self, target: &SandboxPort) -> Option<String> {
        let Self {
            scheme,
            suffix,
            port,
        } = self;
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let url = format!(
            "{scheme}://{}-{}{suffix}{port}",
            target.port, target.conversation
        );
        let uri: Uri = url.parse().ok()?;
        // A host name has no case, and at most 63 characters between dots.
        let is_found = self.find(uri.authority()?).as_ref() == Some(target);
        let length = target.port.to_string().len() + 1 + target.conversation.as_str().len();
        (is_found && length <= 63).then_some(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(port: u16, conversation: &str) -> SandboxPort {
        SandboxPort {
            conversation: conversation.parse().unwrap(),
            port,
        }
    }

    #[test]
    fn url_of_a_port_is_found_again() {
        let local = PortHosts::localhost(false, 3000);
        assert_eq!(
            local.url(&target(80, "a-b1")).unwrap(),
            "http://80-a-b1.localhost:3000"
        );
        assert!(
            PortHosts::localhost(true, 1)
                .url(&target(80, "a"))
                .unwrap()
                .starts_with("https://80-a.localhost:1")
        );
        let remote = PortHosts::parse("https://*.Sandboxes.example.org/").unwrap();
        assert_eq!(
            remote.url(&target(65535, "a")).unwrap(),
            "https://65535-a.sandboxes.example.org"
        );
        for hosts in [local, remote] {
            for id in ["Upper", "under_score", "a.b", &"a".repeat(62)] {
                assert_eq!(hosts.url(&target(80, id)), None, "{id}");
            }
        }
    }

    #[test]
    fn other_hosts_are_no_ports() {
        let hosts = PortHosts::localhost(false, 3000);
        for host in [
            "localhost:3000",
            "80.localhost",
            "x-a.localhost",
            "0-a.localhost",
            "70000-a.localhost",
            "80-.localhost",
            "80-a.localhost.example.org",
            "80-a.b.localhost",
        ] {
            assert_eq!(hosts.find(&host.parse().unwrap()), None, "{host}");
        }
        assert_eq!(
            hosts.find(&"80-A.LOCALHOST:1".parse().unwrap()),
            Some(target(80, "a"))
        );
        for wrong in [
            "",
            "*.example.org",
            "https://example.org",
            "ftp://*.example.org",
            "https://*example.org",
            "https://*.",
            "https://*.a@b",
        ] {
            assert!(PortHosts::parse(wrong).is_err(), "{wrong}");
        }
    }
}
