//! One HTTP/2 connection carries everything at once, and streams that nobody reads hold nothing up.

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
use protocol::sandbox_api::Info;
use serde_json::json;
use tokio::net::UnixStream;

use crate::harness::Server;

type Client = http2::SendRequest<BoxBody<Bytes, Infallible>>;

async fn connect(server: &Server) -> Client {
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

fn whole(text: impl Into<Bytes>) -> BoxBody<Bytes, Infallible> {
    Full::new(text.into()).boxed()
}

/// Begins, and never goes on.
fn stalled(bytes: usize) -> BoxBody<Bytes, Infallible> {
    let first = stream::iter([Ok(Frame::data(Bytes::from(vec![b' '; bytes])))]);
    StreamBody::new(futures_util::StreamExt::chain(first, stream::pending())).boxed()
}

async fn is_alive(client: &mut Client) {
    let request = Request::get("http://sandbox/alive").body(whole("")).unwrap();
    let answered = tokio::time::timeout(Duration::from_secs(5), client.send_request(request)).await;
    let body = answered.expect("streams that nobody reads hold it up").unwrap().into_body();
    assert_eq!(body.collect().await.unwrap().to_bytes(), r#"{"status":"ok"}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_stalled_streams_each_way_are_harmless() {
    let server = Server::start();
    std::fs::write(server.file("big"), vec![b'x'; 4 << 20]).unwrap();
    let mut client = connect(&server).await;
    let mut unread: Vec<Response<hyper::body::Incoming>> = Vec::new();
    let read = json!({"action": "read", "args": {"path": "big"}}).to_string();
    for number in 0..50 {
        let uri = format!("http://sandbox/v1/actions/down{number}");
        let response =
            client.send_request(Request::post(uri).body(whole(read.clone())).unwrap()).await.unwrap();
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
    let body = unread.pop().unwrap().into_body().collect().await.unwrap().to_bytes();
    assert!(body.len() > 4 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_streams_than_are_served_are_refused_and_not_left_waiting() {
    let server = Server::start();
    let mut client = connect(&server).await;
    let mut open = tokio::task::JoinSet::new();
    for number in 0..1024 {
        let uri = format!("http://sandbox/v1/actions/a{number}");
        client.ready().await.unwrap();
        open.spawn(client.send_request(Request::post(uri).body(stalled(1)).unwrap()));
    }
    is_alive(&mut client).await;
    // Those above have been sent before this one, but are taken up in any order.
    loop {
        let request = Request::get("http://sandbox/v1/info").body(whole("")).unwrap();
        match client.send_request(request).await.unwrap().status().as_u16() {
            429 => break,
            status => assert_eq!(status, 200),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_versions_of_http_are_spoken_on_one_socket() {
    let server = Server::start();
    let info: Info =
        serde_json::from_value(server.send(hyper::Method::GET, "/v1/info", "").await.json()).unwrap();
    assert_eq!(info.working_dir, server.dir.path().canonicalize().unwrap().to_str().unwrap());
    let mut client = connect(&server).await;
    let request = Request::get("http://sandbox/v1/info").body(whole("")).unwrap();
    let body = client.send_request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(serde_json::from_slice::<Info>(&body).unwrap(), info);
}
