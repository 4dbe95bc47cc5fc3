//! A server on a network, and the opening of streams to it: TCP without delay, and TLS over it when its address says so.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use engine::sandbox::{ByteStream, SandboxError};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::RUNTIME;
use super::trust::{Protocol, Trust};
use crate::connect::{ConnectError, ServerUrl};

/// For the name's look-up, TCP and TLS together.
const OPEN_WAIT: Duration = Duration::from_secs(10);

/// A server and whose certificates are believed of it.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) url: ServerUrl,
    trust: Arc<Trust>,
}

/// Why there is no stream. One line that says what to do.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// Nobody is reached. May go better the next time.
    #[error("cannot reach {server}: {source}: check the address, and that the server runs")]
    Unreachable { server: String, source: io::Error },
    /// It is reached, and TLS fails for another reason than its certificate.
    #[error("{server} does not speak TLS as we do: {source}: check the port, and whether it is http://")]
    Tls { server: String, source: io::Error },
    /// It does not prove who it is. No retry helps.
    #[error("the certificate of {server} does not hold: {reason}: give its CA's file, or have it renewed")]
    Certificate { server: String, reason: String },
    /// It speaks TLS and not what we need over it.
    #[error("{server} does not agree to speak {protocol}: a proxy in front of it must let that through")]
    Protocol { server: String, protocol: &'static str },
    /// Our own certificates cannot be used.
    #[error(transparent)]
    Trust(SandboxError),
}

impl OpenError {
    /// Whether the same may work in a while.
    pub(super) fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Tls { .. })
    }

    /// Whether the host is there, and nobody listens.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self, Self::Unreachable { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused)
    }
}

impl From<OpenError> for SandboxError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Trust(error) => error,
            other => Self::RuntimeUnavailable { runtime: RUNTIME, detail: other.to_string() },
        }
    }
}

impl From<OpenError> for ConnectError {
    fn from(error: OpenError) -> Self {
        Self::Failed { doing: "opening a stream".into(), source: io::Error::other(error.to_string()) }
    }
}

impl Endpoint {
    pub(super) fn new(url: ServerUrl, trust: Arc<Trust>) -> Self {
        Self { url, trust }
    }

    /// Another server, of which the same certificates are believed.
    pub(super) fn beside(&self, url: ServerUrl) -> Self {
        Self { url, trust: Arc::clone(&self.trust) }
    }

    /// Opens a stream over which `protocol` is spoken. Bounded in time.
    pub(super) async fn open(&self, protocol: Protocol) -> Result<Box<dyn ByteStream>, OpenError> {
        let waited = timeout(OPEN_WAIT, self.open_unbounded(protocol)).await;
        waited.unwrap_or_else(|_| {
            let reason = format!("no answer within {} s", OPEN_WAIT.as_secs());
            Err(self.unreachable(io::Error::new(io::ErrorKind::TimedOut, reason)))
        })
    }

    async fn open_unbounded(&self, protocol: Protocol) -> Result<Box<dyn ByteStream>, OpenError> {
        let address = (self.url.host(), self.url.port());
        let stream = TcpStream::connect(address).await.map_err(|source| self.unreachable(source))?;
        // Small frames must not wait for each other.
        stream.set_nodelay(true).map_err(|source| self.unreachable(source))?;
        if !self.url.is_tls() {
            return Ok(Box::new(stream));
        }
        let connector = self.trust.connector(protocol).await.map_err(OpenError::Trust)?;
        let name = ServerName::try_from(self.url.host().to_owned()).map_err(|_| OpenError::Certificate {
            server: self.server(),
            reason: "no certificate can be made out to this name".into(),
        })?;
        let stream = connector.connect(name, stream).await.map_err(|source| self.no_tls(source, protocol))?;
        match stream.get_ref().1.alpn_protocol() {
            Some(agreed) if agreed == protocol.alpn() => Ok(Box::new(stream)),
            // A server that agrees on nothing speaks HTTP/1.1.
            None if protocol == Protocol::Http1 => Ok(Box::new(stream)),
            _ => Err(self.other_protocol(protocol)),
        }
    }

    fn server(&self) -> String {
        format!("{}:{}", self.url.host(), self.url.port())
    }

    fn unreachable(&self, source: io::Error) -> OpenError {
        OpenError::Unreachable { server: self.server(), source }
    }

    fn other_protocol(&self, protocol: Protocol) -> OpenError {
        let protocol = match protocol {
            Protocol::Http1 => "HTTP/1.1",
            Protocol::Http2 => "HTTP/2",
        };
        OpenError::Protocol { server: self.server(), protocol }
    }

    fn no_tls(&self, source: io::Error, protocol: Protocol) -> OpenError {
        let tls = source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match tls {
            Some(rustls::Error::InvalidCertificate(reason)) => {
                OpenError::Certificate { server: self.server(), reason: format!("{reason:?}") }
            }
            Some(rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol)) => {
                self.other_protocol(protocol)
            }
            _ => OpenError::Tls { server: self.server(), source },
        }
    }
}
