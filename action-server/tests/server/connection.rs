//! One HTTP/2 connection carries all requests concurrently, and unread streams do not block the
//! others.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use protocol::sandbox_api::ServerInfo;
use serde_json::json;
use tokio::net::UnixStream;

use crate::harness::TestServer;

type Http2Client = http2::SendRequest<BoxBody<Bytes, Infallible>>;

async fn connect(server: &TestServer) -> Http2Client {
    let stream = TokioIo::new(UnixStream::connect(server.socket()).await.unwrap());
    let (client, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(1 << 30)
        .max_concurrent_reset_streams(1024)
        .handshake(stream)
        .await
        .unwrap();
    tokio::spawn(connection);
    client
}

fn complete_body(text: impl Into<Bytes>) -> BoxBody<Bytes, Infallible> {
    Full::new(text.into()).boxed()
}

/// Returns a body that never ends after its first bytes.
fn stalled(bytes: usize) -> BoxBody<Bytes, Infallible> {
    let first = stream::iter([Ok(Frame::data(Bytes::from(vec![b' '; bytes])))]);
    StreamBody::new(futures_util::StreamExt::chain(first, stream::pending())).boxed()
}

async fn is_alive(client: &mut Http2Client) {
    let request = Request::get("http://sandbox/alive")
        .body(complete_body(""))
        .unwrap();
    let answered = tokio::time::timeout(Duration::from_secs(5), client.send_request(request)).await;
    let body = answered
        .expect("unread streams block the request")
        .unwrap()
        .into_body();
    assert_eq!(
        body.collect().await.unwrap().to_bytes(),
        r#"{"status":"ok"}"#
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn server_responds_while_fifty_streams_stall_each_way() {
    let server = TestServer::start();
    std::fs::write(server.file("big"), vec![b'x'; 4 << 20]).unwrap();
    let mut client = connect(&server).await;
    let mut unread: Vec<Response<hyper::body::Incoming>> = Vec::new();
    let read = json!({"action": "read", "args": {"path": "big"}}).to_string();
    for number in 0..50 {
        let uri = format!("http://sandbox/v1/actions/down{number}");
        let response = client
            .send_request(
                Request::post(uri)
                    .body(complete_body(read.clone()))
                    .unwrap(),
            )
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        unread.push(response);
    }
    let mut unfinished = tokio::task::JoinSet::new();
    for number in 0..50 {
        let uri = format!("http://sandbox/v1/actions/up{number}");
        let request = Request::post(uri).body(stalled(900_000)).unwrap();
        unfinished.spawn(client.send_request(request));
    }
    for _ in 0..10 {
        is_alive(&mut client).await;
    }
    let body = unread
        .pop()
        .unwrap()
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes();
    assert!(body.len() > 4 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_is_refused_when_there_are_too_many_streams() {
    let server = TestServer::start();
    let mut client = connect(&server).await;
    let mut open = tokio::task::JoinSet::new();
    for number in 0..1024 {
        let uri = format!("http://sandbox/v1/actions/a{number}");
        client.ready().await.unwrap();
        open.spawn(client.send_request(Request::post(uri).body(stalled(1)).unwrap()));
    }
    is_alive(&mut client).await;
    // The requests above were sent before this one, but may be handled later.
    loop {
        let request = Request::get("http://sandbox/v1/info")
            .body(complete_body(""))
            .unwrap();
        match client
            .send_request(request)
            .await
            .unwrap()
            .status()
            .as_u16()
        {
            429 => break,
            status => assert_eq!(status, 200),
        }
    }
    // A cancel must work although all streams are in use.
    let cancel = Request::delete("http://sandbox/v1/actions/a0")
        .body(complete_body(""))
        .unwrap();
    assert_eq!(client.send_request(cancel).await.unwrap().status(), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn socket_serves_http_1_and_http_2() {
    let server = TestServer::start();
    let info: ServerInfo =
        serde_json::from_value(server.send(hyper::Method::GET, "/v1/info", "").await.json())
            .unwrap();
    assert_eq!(
        info.working_dir,
        server.dir.path().canonicalize().unwrap().to_str().unwrap()
    );
    let mut client = connect(&server).await;
    let request = Request::get("http://sandbox/v1/info")
        .body(complete_body(""))
        .unwrap();
    let body = client
        .send_request(request)
        .await
        .unwrap()
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes();
    assert_eq!(serde_json::from_slice::<ServerInfo>(&body).unwrap(), info);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_responds_after_a_thousand_broken_connections() {
    use tokio::io::AsyncWriteExt as _;
    let server = TestServer::start_with_key("k");
    let mut host = connect(&server).await;
    is_alive(&mut host).await;
    let info = || {
        let request =
            Request::get("http://sandbox/v1/info").header(protocol::sandbox_api::KEY_HEADER, "k");
        request.body(complete_body("")).unwrap()
    };
    assert_eq!(host.send_request(info()).await.unwrap().status(), 200);
    let requests: [&[u8]; 5] = [
        b"",
        b"GET /v1/in",
        b"POST /v1/actions/a HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{",
        b"\x00\xff\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    let mut broken = std::collections::VecDeque::new();
    for request in requests.iter().cycle().take(1000) {
        let mut stream = UnixStream::connect(server.socket()).await.unwrap();
        stream.write_all(request).await.unwrap();
        broken.push_back(stream);
        // Limits the descriptors of this process. The server must close its own without that.
        if broken.len() > 300 {
            broken.pop_front();
        }
    }
    is_alive(&mut host).await;
    assert_eq!(host.send_request(info()).await.unwrap().status(), 200);
    is_alive(&mut connect(&server).await).await;
}
