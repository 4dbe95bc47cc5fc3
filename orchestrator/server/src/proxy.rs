//! What all that forward requests have in common.

use axum::extract::Request;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};

/// Headers about one connection.
const CONNECTION_HEADERS: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// A client's request to change the protocol, of a WebSocket for example.
pub(crate) struct Upgrade {
    protocol: HeaderValue,
    client: hyper::upgrade::OnUpgrade,
}

impl Upgrade {
    /// Takes the request for another protocol from a request. `None` if it has none.
    pub(crate) fn take(request: &mut Request) -> Option<Self> {
        let protocol = request.headers().get(header::UPGRADE)?.clone();
        Some(Self {
            protocol,
            client: hyper::upgrade::on(request),
        })
    }

    /// Sets the headers of the request for the protocol.
    pub(crate) fn set(&self, headers: &mut HeaderMap) {
        set_protocol(headers, self.protocol.clone());
    }

    /// Copies in both directions until one side ends.
    pub(crate) async fn copy<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        target: impl Future<Output = Option<S>>,
    ) {
        // Either side may close the connection at any time.
        if let (Ok(client), Some(mut target)) = tokio::join!(self.client, target) {
            let _ = copy_bidirectional(&mut TokioIo::new(client), &mut target).await;
        }
    }
}

/// Sets the headers of a change of the protocol.
pub(crate) fn set_protocol(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol);
}

/// Removes the headers about one connection.
pub(crate) fn remove_connection(headers: &mut HeaderMap) {
    // Without the encoding, the wrong length would be that of the body.
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    let named = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|names| names.to_str().ok());
    let named: Vec<_> = named
        .flat_map(|names| names.split(','))
        .map(|name| name.trim().to_owned())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in CONNECTION_HEADERS {
        headers.remove(name);
    }
}
