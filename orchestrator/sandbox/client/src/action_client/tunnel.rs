//! Byte streams to ports, sockets and terminals in the sandbox: HTTP/2 streams, opened by extended
//! CONNECT.

use bytes::Bytes;
use engine::sandbox::{ByteStream, SandboxError, StreamTarget};
use http::{HeaderValue, Method};
use hyper::ext::Protocol;
use hyper_util::rt::TokioIo;

use super::link::Link;
use super::request::{self, percent_encode};

/// Required by extended CONNECT. The server ignores it: the path determines the target.
const PROTOCOL: Protocol = Protocol::from_static("glovebox");

/// Opens a tunnel. May be retried, because a tunnel ends with its connection.
pub(super) async fn open(
    link: &Link,
    key: &HeaderValue,
    target: &StreamTarget,
) -> Result<Box<dyn ByteStream>, SandboxError> {
    let path = path(target);
    let connect = || {
        let mut request = request::new(key, Method::CONNECT, &path, Bytes::new());
        request.extensions_mut().insert(PROTOCOL);
        request
    };
    let response = request::send_with_retries(link, connect).await??;
    let stream = hyper::upgrade::on(response)
        .await
        .map_err(|error| SandboxError::Malformed {
            detail: format!(
                "cannot open a stream: {}",
                engine::errors::format_chain(&error)
            ),
        })?;
    Ok(Box::new(TokioIo::new(stream)))
}

fn path(target: &StreamTarget) -> String {
    match target {
        StreamTarget::Port(port) => format!("/v1/ports/{port}/tunnel"),
        StreamTarget::Socket(path) => format!("/v1/sockets/tunnel?path={}", percent_encode(path)),
        StreamTarget::Terminal(query) => {
            let (columns, rows, term) = (query.columns, query.rows, percent_encode(&query.term));
            let command = query.command.as_deref();
            let command = command.map(|text| format!("&command={}", percent_encode(text)));
            format!(
                "/v1/terminal?columns={columns}&rows={rows}&term={term}{}",
                command.unwrap_or_default()
            )
        }
    }
}
