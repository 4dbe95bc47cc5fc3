//! Handshakes of TLS, which clients that have sent no key may start and leave unfinished.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::counted_stream::CountedStream;
use crate::keyed_permits::KeyedPermits;
use crate::rate_limit::client_network;

/// Bounds of handshakes.
#[derive(Debug, Clone, Copy)]
pub(super) struct HandshakeLimits {
    /// Time for a handshake, and for its turn.
    pub(super) timeout: Duration,
    /// Maximum number of concurrent handshakes. Fewer than the connections, so that unfinished ones
    /// do not occupy all.
    pub(super) max: usize,
    /// Maximum number of concurrent handshakes of one client, whose further ones wait. A handshake
    /// takes milliseconds, so that a client with many connections does not notice.
    pub(super) max_per_client: usize,
}

impl Default for HandshakeLimits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            max: 1024,
            max_per_client: 64,
        }
    }
}

/// Performs the handshakes of a server.
#[derive(Clone)]
pub(super) struct Handshakes {
    acceptor: TlsAcceptor,
    permits: Arc<Semaphore>,
    clients: KeyedPermits<IpAddr>,
    timeout: Duration,
}

impl Handshakes {
    pub(super) fn new(config: Arc<ServerConfig>, limits: HandshakeLimits) -> Self {
        let permits = Arc::new(Semaphore::new(limits.max));
        let clients = KeyedPermits::new(limits.max_per_client);
        Self {
            acceptor: TlsAcceptor::from(config),
            permits,
            clients,
            timeout: limits.timeout,
        }
    }

    /// Performs a handshake with a client, whose number is limited unless it is `None`. The
    /// connection is closed after an error.
    pub(super) async fn accept(
        &self,
        stream: CountedStream,
        client: Option<IpAddr>,
    ) -> io::Result<TlsStream<CountedStream>> {
        let handshake = async {
            // First that of the client, so that those that wait for it occupy nothing.
            let _client_permit = match client {
                Some(client) => self.clients.acquire(client_network(client)).await,
                None => None,
            };
            // An error means that the semaphore is closed, which it never is.
            let _permit = self.permits.acquire().await.ok();
            self.acceptor.accept(stream).await
        };
        timeout(self.timeout, handshake).await?
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::Router;
    use axum::routing::get;
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::crypto::ring;
    use rustls::pki_types::PrivateKeyDer;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpSocket, TcpStream};
    use tokio::task::JoinHandle;
    use tokio_rustls::TlsConnector;
    use tokio_util::sync::CancellationToken;

    use super::super::accept_with;
    use super::super::admission::{Admission, ConnectionLimits};
    use super::*;
    use crate::client_address::TrustedProxies;

    /// Returns a server's configuration, and a client that trusts it.
    fn configs() -> (Arc<ServerConfig>, TlsConnector) {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let client = tls::client(roots, &[b"http/1.1"]).unwrap();
        (Arc::new(server), TlsConnector::from(Arc::new(client)))
    }

    /// Starts a server with limits of handshakes.
    async fn start(
        server: Arc<ServerConfig>,
        limits: HandshakeLimits,
        shutdown: &CancellationToken,
    ) -> (SocketAddr, JoinHandle<()>) {
        let router = Router::new().route("/", get(async || "hello"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, handshakes) = (
            listener.local_addr().unwrap(),
            Handshakes::new(server, limits),
        );
        let connections = ConnectionLimits {
            total: 64,
            per_client: 32,
        };
        let admission = Admission::new(connections, TrustedProxies::default());
        let accepting = accept_with(
            admission,
            Some(handshakes),
            router,
            listener,
            shutdown.clone(),
        );
        (address, tokio::spawn(accepting))
    }

    /// Requests `/` on a new connection, and returns the response.
    async fn request(client: &TlsConnector, stream: TcpStream) -> String {
        let mut stream = client
            .connect("localhost".try_into().unwrap(), stream)
            .await
            .unwrap();
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    async fn silent_client_is_closed_and_the_server_continues() {
        let (server, client) = configs();
        let shutdown = CancellationToken::new();
        let limits = HandshakeLimits {
            timeout: Duration::from_millis(200),
            max: 1,
            max_per_client: 1,
        };
        let (address, accepting) = start(server, limits, &shutdown).await;

        let mut silent = TcpStream::connect(address).await.unwrap();
        let mut plain = TcpStream::connect(address).await.unwrap();
        plain
            .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await
            .unwrap();
        assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
        let mut answer = Vec::new();
        // An alert, or a reset.
        let _ = plain.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");

        let response = request(&client, TcpStream::connect(address).await.unwrap()).await;
        assert!(
            response.starts_with("HTTP/1.1 200") && response.ends_with("hello"),
            "{response}"
        );
        shutdown.cancel();
        accepting.await.unwrap();
    }

    #[tokio::test]
    async fn silent_handshakes_of_one_client_block_no_other() {
        let (server, client) = configs();
        let shutdown = CancellationToken::new();
        // Longer than any test runs.
        let limits = HandshakeLimits {
            timeout: Duration::from_secs(3600),
            max: 4,
            max_per_client: 2,
        };
        let (address, accepting) = start(server, limits, &shutdown).await;
        let mut silent = Vec::new();
        for _ in 0..16 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let response = request(&client, socket.connect(address).await.unwrap()).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        shutdown.cancel();
        accepting.await.unwrap();
    }
}
