//! The file routes: what goes in comes out, byte for byte, and nothing half is ever left.

mod content;
mod entries;
mod root;
mod tree;
mod watch;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use crate::harness::{PATIENCE, Server};

/// An answer with its head.
struct Answered {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Answered {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

async fn ask(
    server: &Server,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Answered {
    let mut request = Request::builder().method(method).uri(path).header("host", "sandbox");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let stream = TokioIo::new(UnixStream::connect(server.socket()).await.unwrap());
    let (mut client, connection) = http1::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let response = client.send_request(request.body(Full::new(body.into())).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let body = tokio::time::timeout(PATIENCE, body.collect()).await.unwrap().unwrap();
    connection.abort();
    Answered { status: head.status.as_u16(), headers: head.headers, body: body.to_bytes() }
}

/// A megabyte and a bit that repeats nowhere near.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// The names of all that lies in the server's folder, but its socket's.
fn names(server: &Server) -> Vec<String> {
    let entries = std::fs::read_dir(server.dir.path()).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "run")
        .collect();
    names.sort();
    names
}
