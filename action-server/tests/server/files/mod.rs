//! The file routes: contents are exact, and no partial file is left.

mod content;
mod entries;
mod root;
mod tree;
mod watch;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request};
use tokio::net::UnixStream;

use crate::harness::{HttpReply, TestServer};

async fn ask(
    server: &TestServer,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> HttpReply {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "sandbox");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let stream = UnixStream::connect(server.socket()).await.unwrap();
    HttpReply::receive(stream, request.body(Full::new(body.into())).unwrap()).await
}

/// Returns bytes without short repetitions.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Returns the names in the server's folder, without that of its socket.
fn names(server: &TestServer) -> Vec<String> {
    let entries = std::fs::read_dir(server.dir.path()).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "run")
        .collect();
    names.sort();
    names
}
