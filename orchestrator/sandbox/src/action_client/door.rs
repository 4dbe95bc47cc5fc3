//! Byte streams to what is inside: a stream of the connection that becomes a tunnel, by HTTP/2's extended CONNECT.

use bytes::Bytes;
use engine::sandbox::{ByteStream, SandboxError, StreamTarget};
use http::{HeaderValue, Method};
use hyper::ext::Protocol;
use hyper_util::rt::TokioIo;

use super::link::Link;
use super::request::{self, escaped};

/// Any will do: the path says what is meant.
const PROTOCOL: Protocol = Protocol::from_static("glovebox");

/// Opens a stream. What a connection that breaks has begun ends with it, so it may be asked for again.
pub(super) async fn open(
    link: &Link,
    key: &HeaderValue,
    door: &StreamTarget,
) -> Result<Box<dyn ByteStream>, SandboxError> {
    let path = path(door);
    let request = || {
        let mut request = request::request(key, Method::CONNECT, &path, Bytes::new());
        request.extensions_mut().insert(PROTOCOL);
        request
    };
    let response = request::ask(link, request).await??;
    let stream = hyper::upgrade::on(response).await.map_err(|error| SandboxError::Malformed {
        detail: format!("opening a stream: {}", crate::placement::chain(&error)),
    })?;
    Ok(Box::new(TokioIo::new(stream)))
}

fn path(door: &StreamTarget) -> String {
    match door {
        StreamTarget::Port(port) => format!("/v1/ports/{port}/tunnel"),
        StreamTarget::Socket(path) => format!("/v1/sockets/tunnel?path={}", escaped(path)),
        StreamTarget::Terminal(query) => {
            let (columns, rows, term) = (query.columns, query.rows, escaped(&query.term));
            let command = query.command.as_deref();
            let command = command.map(|text| format!("&command={}", escaped(text))).unwrap_or_default();
            format!("/v1/terminal?columns={columns}&rows={rows}&term={term}{command}")
        }
    }
}
