//! A server on a network, and streams to it: TCP, or TLS for an `https` URL.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use engine::sandbox::{ByteStream, SandboxError};
use rustls::pki_types::ServerName;
use sandbox_client::{ConnectError, ServerUrl};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::trust::{Protocol, TrustStore};
use super::unavailable;

/// Timeout for name resolution, TCP and TLS.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// A server, and the trusted certificate authorities.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) url: ServerUrl,
    trust: Arc<TrustStore>,
}

/// Why no stream was opened. The message is one line and contains a remedy.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// There is no connection. A retry may succeed.
    #[error("cannot reach {server}: {source}: check the address, and that the server runs")]
    Unreachable { server: String, source: io::Error },
    /// TLS fails, but not because of the certificate.
    #[error(
        "cannot establish TLS with {server}: {source}: check the port, and whether it is http://"
    )]
    Tls { server: String, source: io::Error },
    /// The certificate is not valid. A retry cannot succeed.
    #[error(
        "the certificate of {server} is not valid: {reason}: configure the file of its CA, or renew it"
    )]
    Certificate { server: String, reason: String },
    /// The server does not support the protocol over TLS.
    #[error("{server} does not support {protocol}: a proxy in front of it must forward it")]
    Protocol {
        server: String,
        protocol: &'static str,
    },
    /// The configured certificates cannot be loaded.
    #[error(transparent)]
    Trust(SandboxError),
}

impl OpenError {
    /// Whether a retry may succeed.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Tls { .. })
    }

    /// Whether the host responds, but does not listen on the port.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self, Self::Unreachable { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused)
    }
}

impl From<OpenError> for SandboxError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Trust(error) => error,
            other => unavailable(other.to_string()),
        }
    }
}

impl From<OpenError> for ConnectError {
    fn from(error: OpenError) -> Self {
        Self::Unknown(error.to_string())
    }
}

impl Endpoint {
    pub(super) fn new(url: ServerUrl, trust: Arc<TrustStore>) -> Self {
        Self { url, trust }
    }

    /// Returns another server with the same trusted authorities.
    pub(super) fn with_url(&self, url: ServerUrl) -> Self {
        Self {
            url,
            trust: Arc::clone(&self.trust),
        }
    }

    /// Opens a stream for this protocol, with a timeout.
    pub(super) async fn open(&self, protocol: Protocol) -> Result<Box<dyn ByteStream>, OpenError> {
        let opened = timeout(OPEN_TIMEOUT, self.open_unbounded(protocol)).await;
        opened.unwrap_or_else(|_| {
            let reason = format!("no response within {} s", OPEN_TIMEOUT.as_secs());
            Err(self.unreachable(io::Error::new(io::ErrorKind::TimedOut, reason)))
        })
    }

    async fn open_unbounded(&self, protocol: Protocol) -> Result<Box<dyn ByteStream>, OpenError> {
        let address = (self.url.host(), self.url.port());
        let stream = TcpStream::connect(address)
            .await
            .map_err(|source| self.unreachable(source))?;
        // Otherwise small frames would be delayed.
        stream
            .set_nodelay(true)
            .map_err(|source| self.unreachable(source))?;
        if !self.url.is_tls() {
            return Ok(Box::new(stream));
        }
        let connector = self
            .trust
            .connector(protocol)
            .await
            .map_err(OpenError::Trust)?;
        let name = ServerName::try_from(self.url.host().to_owned()).map_err(|_| {
            OpenError::Certificate {
                server: self.server(),
                reason: "a certificate cannot contain this name".into(),
            }
        })?;
        let stream = connector
            .connect(name, stream)
            .await
            .map_err(|source| self.tls_error(source, protocol))?;
        match stream.get_ref().1.alpn_protocol() {
            Some(agreed) if agreed == protocol.alpn() => Ok(Box::new(stream)),
            // A server without ALPN supports HTTP/1.1.
            None if protocol == Protocol::Http1 => Ok(Box::new(stream)),
            _ => Err(self.protocol_error(protocol)),
        }
    }

    fn server(&self) -> String {
        format!("{}:{}", self.url.host(), self.url.port())
    }

    fn unreachable(&self, source: io::Error) -> OpenError {
        OpenError::Unreachable {
            server: self.server(),
            source,
        }
    }

    fn protocol_error(&self, protocol: Protocol) -> OpenError {
        let protocol = match protocol {
            Protocol::Http1 => "HTTP/1.1",
            Protocol::Http2 => "HTTP/2",
        };
        OpenError::Protocol {
            server: self.server(),
            protocol,
        }
    }

    fn tls_error(&self, source: io::Error, protocol: Protocol) -> OpenError {
        let tls = source
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match tls {
            Some(rustls::Error::InvalidCertificate(reason)) => OpenError::Certificate {
                server: self.server(),
                reason: format!("{reason:?}"),
            },
            Some(rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol)) => {
                self.protocol_error(protocol)
            }
            _ => OpenError::Tls {
                server: self.server(),
                source,
            },
        }
    }
}
