//! Accepts connections, and serves each in its own task until it ends or the server shuts down.
//!
//! Not `axum::serve`: it sets no timer, without which a client may send the head of a request for as long as it likes, and it
//! admission no number of connections.

mod counted_stream;
mod handshake;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::client_address::Peer;
use counted_stream::CountedStream;
use handshake::{HandshakeLimits, Handshakes};

/// Further connections wait in the socket's queue.
const MAX_CONNECTIONS: usize = 4096;

/// Timeout for the head of each request, so that idle and slow connections do not accumulate.
const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// Time after which a connection is broken whose peer is silent, or does not read what is sent. Streams would otherwise stay
/// open for peers that have vanished.
const PEER_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval of probes on a connection without traffic.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);

/// Delay after an error of `accept`, which usually means that there are no free descriptors at the moment.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Time for open requests to end at shutdown.
const SHUTDOWN_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// What connections are accepted with.
struct Admission {
    /// One for each connection.
    permits: Arc<Semaphore>,
    /// `None` for plain connections.
    handshakes: Option<Handshakes>,
}

/// Accepts connections until `shutdown` is cancelled: with TLS if there is a configuration, else plain ones.
pub(crate) async fn accept(
    router: Router,
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    shutdown: CancellationToken,
) {
    let handshakes = tls.map(|config| Handshakes::new(config, HandshakeLimits::default()));
    let admission = Admission { permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)), handshakes };
    accept_with(admission, router, listener, shutdown).await;
}

/// Accepts connections, each with a permit.
async fn accept_with(
    admission: Admission,
    router: Router,
    listener: TcpListener,
    shutdown: CancellationToken,
) {
    let service = TowerToHyperService::new(router);
    let mut connections = JoinSet::new();
    loop {
        let (stream, address) = tokio::select! {
            () = shutdown.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept_one(&listener, &admission.permits) => accepted,
        };
        let (service, shutdown) = (service.clone(), shutdown.clone());
        match admission.handshakes.clone() {
            Some(handshakes) => {
                connections.spawn(serve_encrypted(handshakes, service, stream, address, shutdown))
            }
            None => connections.spawn(serve(service, stream, Peer { address, is_tls: false }, shutdown)),
        };
    }
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(SHUTDOWN_GRACE_PERIOD, ended).await.is_err() {
        tracing::warn!(count = connections.len(), "aborting requests that are still open at shutdown");
    }
}

/// Accepts a connection once there are fewer than the maximum.
async fn accept_one(listener: &TcpListener, permits: &Arc<Semaphore>) -> (CountedStream, SocketAddr) {
    // An error means that the semaphore is closed, which it never is.
    let permit = Arc::clone(permits).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                configure(&stream);
                return (CountedStream::new(stream, permit), address);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Sets the options of a connection. Errors are only logged: a broken connection fails later too.
fn configure(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE_INTERVAL).with_interval(KEEP_ALIVE_INTERVAL);
    // Without a delay of small frames.
    let configured = stream
        .set_nodelay(true)
        .and_then(|()| socket.set_tcp_keepalive(&keep_alive))
        .and_then(|()| socket.set_tcp_user_timeout(Some(PEER_TIMEOUT)));
    if let Err(error) = configured {
        tracing::debug!(%error, "cannot set the options of a connection");
    }
}

async fn serve_encrypted(
    handshakes: Handshakes,
    service: TowerToHyperService<Router>,
    stream: CountedStream,
    address: SocketAddr,
    shutdown: CancellationToken,
) {
    let accepted = tokio::select! {
        accepted = handshakes.accept(stream) => accepted,
        () = shutdown.cancelled() => return,
    };
    match accepted {
        Ok(stream) => serve(service, stream, Peer { address, is_tls: true }, shutdown).await,
        // Not a warning: any client can cause it.
        Err(error) => tracing::debug!(%error, %address, "a TLS handshake failed"),
    }
}

async fn serve(
    service: TowerToHyperService<Router>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    shutdown: CancellationToken,
) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        service.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        // Not a warning: usually the client disconnected.
        tracing::debug!(%error, "a connection broke");
    }
}

#[cfg(test)]
mod tests {
    use axum::extract::ws::WebSocketUpgrade;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn websocket_is_counted_until_it_is_closed() {
        let echo = async |upgrade: WebSocketUpgrade| {
            upgrade.on_upgrade(async |mut socket| {
                while let Some(Ok(message)) = socket.recv().await {
                    let _ = socket.send(message).await;
                }
            })
        };
        let router = Router::new().route("/", get(echo));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (permits, shutdown) = (Arc::new(Semaphore::new(2)), CancellationToken::new());
        let admission = Admission { permits: Arc::clone(&permits), handshakes: None };
        tokio::spawn(accept_with(admission, router, listener, shutdown.clone()));

        let mut client = TcpStream::connect(address).await.unwrap();
        let head = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        // After the head, a masked frame with the text `a`.
        client.write_all(&[head.as_bytes(), b"\x81\x81\0\0\0\0a"].concat()).await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"\x81\x01a") {
            assert_ne!(client.read_buf(&mut received).await.unwrap(), 0);
        }
        // One for the WebSocket, one for the connection that is being accepted.
        assert_eq!(permits.available_permits(), 0);
        drop(client);
        drop(permits.acquire().await.unwrap());
        shutdown.cancel();
    }
}
