//! Accepts connections, and serves each in its own task until it ends or the server shuts down.
//!
//! Not `axum::serve`: it sets no timer, without which a client may send the head of a request for
//! as long as it likes, and it bounds no number of connections. Neither does tower's limit of
//! concurrency know clients.

mod admission;
mod counted_stream;
mod descriptors;
mod ending_stream;
mod handshake;
mod unread_body;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::StatusCode;
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
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::client_address::{Peer, TrustedProxies};
use admission::{Admission, ConnectionLimits};
use counted_stream::CountedStream;
use ending_stream::{EndingStream, Upgrade};
use handshake::{HandshakeLimits, Handshakes};
use unread_body::note_end;

/// Timeout for the head of each request, so that idle and slow connections do not accumulate.
pub(crate) const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// Time after which a connection is broken whose peer is silent, or does not read what is sent.
/// Streams would otherwise stay open for peers that have vanished.
const PEER_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval of probes on a connection without traffic.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);

/// Delay after an error of `accept`, which usually means that there are no free descriptors at the
/// moment.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Time for open requests to end at shutdown.
const SHUTDOWN_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// Accepts connections until `shutdown` is cancelled: with TLS if there is a configuration, else
/// plain ones. The proxies' addresses have no limits of their own, because each stands for many
/// clients.
pub(crate) async fn accept(
    router: Router,
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    proxies: TrustedProxies,
    shutdown: CancellationToken,
) {
    let handshakes = tls.map(|config| Handshakes::new(config, HandshakeLimits::default()));
    let limits = ConnectionLimits::for_descriptors(descriptors::raise_limit());
    accept_with(
        Admission::new(limits, proxies),
        handshakes,
        router,
        listener,
        shutdown,
    )
    .await;
}

/// Accepts connections, each with a permit.
async fn accept_with(
    admission: Admission,
    handshakes: Option<Handshakes>,
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
            accepted = accept_one(&listener, &admission) => accepted,
        };
        let (service, shutdown) = (service.clone(), shutdown.clone());
        match handshakes.clone() {
            Some(handshakes) => {
                let client = admission.limited_client(address.ip());
                connections.spawn(serve_encrypted(
                    (handshakes, client),
                    service,
                    stream,
                    address,
                    shutdown,
                ))
            }
            None => connections.spawn(serve(
                service,
                stream,
                Peer {
                    address,
                    is_tls: false,
                },
                shutdown,
            )),
        };
    }
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(SHUTDOWN_GRACE_PERIOD, ended).await.is_err() {
        tracing::warn!(
            count = connections.len(),
            "aborting requests that are still open at shutdown"
        );
    }
}

/// Accepts a connection once there are fewer than the maximum. Closes those of a client that has as
/// many as one may have: in the socket's queue they would delay the connections of others.
async fn accept_one(listener: &TcpListener, admission: &Admission) -> (CountedStream, SocketAddr) {
    let permit = admission.wait_for_connection().await;
    loop {
        match listener.accept().await {
            Ok((stream, address)) => match admission.admit(address.ip()) {
                Some(client_permit) => {
                    configure(&stream);
                    return (CountedStream::new(stream, permit, client_permit), address);
                }
                // Not a warning: any client can cause it.
                None => tracing::debug!(%address, "closing a connection: its client has too many"),
            },
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
    let keep_alive = TcpKeepalive::new()
        .with_time(KEEP_ALIVE_INTERVAL)
        .with_interval(KEEP_ALIVE_INTERVAL);
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
    (handshakes, client): (Handshakes, Option<IpAddr>),
    service: TowerToHyperService<Router>,
    stream: CountedStream,
    address: SocketAddr,
    shutdown: CancellationToken,
) {
    let accepted = tokio::select! {
        accepted = handshakes.accept(stream, client) => accepted,
        () = shutdown.cancelled() => return,
    };
    match accepted {
        Ok(stream) => {
            serve(
                service,
                stream,
                Peer {
                    address,
                    is_tls: true,
                },
                shutdown,
            )
            .await;
        }
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
    let upgrade = Upgrade::default();
    let stream = EndingStream::new(stream, upgrade.clone(), shutdown.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let (request, body_end) = note_end(request);
        let (response, upgrade) = (service.call(request), upgrade.clone());
        async move {
            let mut response = response.await?;
            // Before the task that owns the upgraded connection reads from it.
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                upgrade.complete();
            }
            body_end.close_if_unread(&mut response);
            Ok::<_, Infallible>(response)
        }
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
    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::task::JoinHandle;

    use super::*;

    /// Starts a server with limits, on loopback.
    async fn start(
        limits: ConnectionLimits,
        router: Router,
        shutdown: &CancellationToken,
    ) -> (SocketAddr, Admission, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let admission = Admission::new(limits, TrustedProxies::default());
        let accepting = tokio::spawn(accept_with(
            admission.clone(),
            None,
            router,
            listener,
            shutdown.clone(),
        ));
        (address, admission, accepting)
    }

    /// Connects from an address of the loopback network.
    async fn connect_from(own: &str, server: SocketAddr) -> TcpStream {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket
            .bind(SocketAddr::new(own.parse().unwrap(), 0))
            .unwrap();
        socket.connect(server).await.unwrap()
    }

    /// Requests `/`, and returns the status line. Empty if the connection was closed.
    async fn status_line(stream: &mut TcpStream) -> String {
        let mut received = Vec::new();
        // Fails if the server has closed the connection.
        if stream
            .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await
            .is_ok()
        {
            while !received.contains(&b'\n')
                && stream
                    .read_buf(&mut received)
                    .await
                    .is_ok_and(|count| count > 0)
            {}
        }
        String::from_utf8(received)
            .unwrap()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    #[tokio::test]
    async fn idle_connections_of_one_client_block_no_other() {
        let shutdown = CancellationToken::new();
        let limits = ConnectionLimits {
            total: 8,
            per_client: 4,
        };
        let router = Router::new().route("/", get(async || "hello"));
        let (server, _, accepting) = start(limits, router, &shutdown).await;
        let mut idle = Vec::new();
        for _ in 0..16 {
            idle.push(connect_from("127.0.0.1", server).await);
        }
        let mut other = connect_from("127.0.0.2", server).await;
        assert_eq!(status_line(&mut other).await, "HTTP/1.1 200 OK");
        // The first connections of the client still work; the last ones are closed.
        assert_eq!(status_line(&mut idle[3]).await, "HTTP/1.1 200 OK");
        assert_eq!(status_line(&mut idle[4]).await, "");
        // Once it has closed one, it can connect again.
        idle.clear();
        while status_line(&mut connect_from("127.0.0.1", server).await)
            .await
            .is_empty()
        {}
        shutdown.cancel();
        accepting.await.unwrap();
    }

    #[tokio::test]
    async fn response_to_an_unread_body_announces_the_close() {
        let shutdown = CancellationToken::new();
        let limits = ConnectionLimits {
            total: 8,
            per_client: 8,
        };
        let router = Router::new()
            .route("/read", post(async |body: String| body))
            .route("/unread", post(async || "not read"));
        let (server, _, _) = start(limits, router, &shutdown).await;
        for (path, body, is_closed) in [("read", "hello", false), ("unread", "", true)] {
            let mut client = TcpStream::connect(server).await.unwrap();
            let request = format!(
                "POST /{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n{body}"
            );
            client.write_all(request.as_bytes()).await.unwrap();
            let mut received = Vec::new();
            while !received.ends_with(b"hello") && client.read_buf(&mut received).await.unwrap() > 0
            {
            }
            let received = String::from_utf8(received).unwrap();
            assert!(received.starts_with("HTTP/1.1 200 OK"), "{received}");
            assert_eq!(
                received.contains("connection: close"),
                is_closed,
                "{received}"
            );
        }
        shutdown.cancel();
    }

    #[tokio::test]
    async fn websocket_is_counted_until_it_is_closed() {
        let echo = async |upgrade: WebSocketUpgrade| {
            upgrade.on_upgrade(async |mut socket| {
                while let Some(Ok(message)) = socket.recv().await {
                    let _ = socket.send(message).await;
                }
            })
        };
        let shutdown = CancellationToken::new();
        let router = Router::new().route("/", get(echo));
        let limits = ConnectionLimits {
            total: 2,
            per_client: 2,
        };
        let (server, admission, _) = start(limits, router, &shutdown).await;

        let mut client = TcpStream::connect(server).await.unwrap();
        let head = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        // After the head, a masked frame with the text `a`.
        client
            .write_all(&[head.as_bytes(), b"\x81\x81\0\0\0\0a"].concat())
            .await
            .unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"\x81\x01a") {
            assert_ne!(client.read_buf(&mut received).await.unwrap(), 0);
        }
        // One for the WebSocket, one for the connection that is being accepted.
        assert_eq!(admission.available_connections(), 0);
        drop(client);
        drop(admission.wait_for_connection().await.unwrap());
        shutdown.cancel();
    }

    #[tokio::test]
    async fn websocket_ends_at_shutdown() {
        let wait = async |upgrade: WebSocketUpgrade| {
            upgrade.on_upgrade(async |mut socket| while let Some(Ok(_)) = socket.recv().await {})
        };
        let shutdown = CancellationToken::new();
        let limits = ConnectionLimits {
            total: 2,
            per_client: 2,
        };
        let (server, _, accepting) =
            start(limits, Router::new().route("/", get(wait)), &shutdown).await;
        let mut client = TcpStream::connect(server).await.unwrap();
        let head = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        client.write_all(head.as_bytes()).await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"\r\n\r\n") {
            assert_ne!(client.read_buf(&mut received).await.unwrap(), 0);
        }
        shutdown.cancel();
        // Until the end of the connection.
        client.read_to_end(&mut received).await.unwrap();
        accepting.await.unwrap();
    }
}
