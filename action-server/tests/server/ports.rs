//! Ports in the sandbox: listed, awaited and reached through the connection.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::{http1, http2};
use hyper::ext::Protocol;
use hyper::upgrade::Upgraded;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener, UnixStream};

use crate::harness::TestServer;

async fn client(server: &TestServer) -> http2::SendRequest<Empty<Bytes>> {
    let stream = TokioIo::new(UnixStream::connect(server.socket()).await.unwrap());
    let (client, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(1 << 30)
        .handshake(stream)
        .await
        .unwrap();
    tokio::spawn(connection);
    client
}

async fn tunnel(client: &mut http2::SendRequest<Empty<Bytes>>, path: &str) -> TokioIo<Upgraded> {
    let mut request = Request::connect(format!("http://sandbox{path}"))
        .body(Empty::new())
        .unwrap();
    request
        .extensions_mut()
        .insert(Protocol::from_static("tcp"));
    let response = client.send_request(request).await.unwrap();
    let status = response.status();
    if status != 200 {
        panic!(
            "{status}: {:?}",
            response.into_body().collect().await.unwrap().to_bytes()
        );
    }
    TokioIo::new(hyper::upgrade::on(response).await.unwrap())
}

/// Echoes its input, and sends `bye` at the end.
async fn echo(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) {
    let mut received = vec![0; 4096];
    loop {
        match stream.read(&mut received).await {
            Ok(0) | Err(_) => break,
            Ok(count) => stream.write_all(&received[..count]).await.unwrap(),
        }
    }
    let _ = stream.write_all(b"bye").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tunnel_copies_both_directions_and_closes_each_half() {
    let server = TestServer::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            tokio::spawn(echo(listener.accept().await.unwrap().0));
        }
    });
    let mut client = client(&server).await;
    let mut tunnel = tunnel(&mut client, &format!("/v1/ports/{port}/tunnel")).await;
    let sent: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
    let (mut reader, mut writer) = tokio::io::split(&mut tunnel);
    let send = async {
        writer.write_all(&sent).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    tokio::join!(send, async {
        reader.read_to_end(&mut received).await.unwrap()
    });
    assert!(received == [&sent[..], b"bye"].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn tunnel_closes_when_one_side_is_dropped() {
    let server = TestServer::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = client(&server).await;
    let path = format!("/v1/ports/{port}/tunnel");

    let (outside, inside) = tokio::join!(tunnel(&mut client, &path), listener.accept());
    let (mut inside, started) = (inside.unwrap().0, Instant::now());
    drop(outside);
    let ended = tokio::time::timeout(Duration::from_secs(10), inside.read(&mut [0; 8]))
        .await
        .unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)));
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );

    let (mut outside, inside) = tokio::join!(tunnel(&mut client, &path), listener.accept());
    drop(inside);
    let ended = tokio::time::timeout(Duration::from_secs(10), outside.read(&mut [0; 8]))
        .await
        .unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn tunnel_reaches_ports_and_sockets_over_http_1() {
    let server = TestServer::start();
    let listener = UnixListener::bind(server.file("inside.sock")).unwrap();
    tokio::spawn(async move {
        loop {
            tokio::spawn(echo(listener.accept().await.unwrap().0));
        }
    });
    let mut client = client(&server).await;
    let mut outside = tunnel(&mut client, "/v1/sockets/tunnel?path=inside.sock").await;
    outside.write_all(b"hello").await.unwrap();
    let mut received = [0; 5];
    outside.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"hello");

    let stream = TokioIo::new(UnixStream::connect(server.socket()).await.unwrap());
    let (mut client, connection) = http1::handshake(stream).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let request = Request::get("/v1/sockets/tunnel?path=inside.sock")
        .header("host", "sandbox")
        .header("connection", "upgrade")
        .header("upgrade", "tcp");
    let response = client
        .send_request(request.body(Empty::<Bytes>::new()).unwrap())
        .await
        .unwrap();
    assert_eq!(response.status(), 101);
    let mut outside = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    outside.write_all(b"hello").await.unwrap();
    outside.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_listed_and_can_be_awaited() {
    let server = TestServer::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let list = server.send(Method::GET, "/v1/ports", "").await.json();
    let found = list
        .as_array()
        .unwrap()
        .iter()
        .find(|found| found["port"] == json!(port))
        .unwrap();
    assert_eq!(found["addresses"], json!(["127.0.0.1"]));
    assert_eq!(found["processes"][0]["pid"], json!(std::process::id()));
    drop(listener);
    let path = format!("/v1/ports/{port}");
    assert_eq!(
        server.send(Method::GET, &path, "").await.json(),
        json!({"port": port, "listening": false})
    );
    let waiting = server.start_request(Method::GET, &format!("{path}?wait=20"), "");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    let _listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    assert_eq!(waiting.await.unwrap().json()["listening"], json!(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn tunnel_fails_when_the_target_is_unreachable() {
    let server = TestServer::start();
    let free = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let upgrade = |path: String| {
        let request = Request::get(path)
            .header("host", "sandbox")
            .header("connection", "upgrade");
        request
            .header("upgrade", "tcp")
            .body(http_body_util::Full::default())
            .unwrap()
    };
    for (path, status, word) in [
        (format!("/v1/ports/{free}/tunnel"), 404, "listens"),
        ("/v1/ports/0/tunnel".to_owned(), 400, "port"),
        ("/v1/ports/70000/tunnel".to_owned(), 400, "port"),
        ("/v1/sockets/tunnel?path=nowhere".to_owned(), 404, "nowhere"),
        ("/v1/sockets/tunnel".to_owned(), 400, "path"),
    ] {
        let reply = server.send_request(upgrade(path.clone())).await;
        assert_eq!(reply.status, status, "{path}");
        assert!(
            reply.json()["detail"].as_str().unwrap().contains(word),
            "{reply:?}"
        );
    }
    assert_eq!(
        server
            .send(Method::GET, "/v1/ports/80/tunnel", "")
            .await
            .status,
        426
    );
    assert_eq!(
        server
            .send(Method::GET, "/v1/ports/80?wait=-1", "")
            .await
            .status,
        400
    );
}
