//! Streams to the action server of a sandbox that a sandbox host leases: upgraded requests to the
//! sandbox's URL.
//!
//! Uses `Upgrade` of HTTP/1.1, which proxies that terminate TLS forward as for WebSockets. The
//! sandbox host only forwards the bytes.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use engine::sandbox::ByteStream;
use futures_util::FutureExt as _;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use protocol::runtime_api::{ApiErrorCode, STREAM_PROTOCOL};
use protocol::sandbox_api::KEY_HEADER;
use sandbox_client::{ConnectError, Connector};

use super::api;
use super::direct::RECONNECT_TIMEOUT;
use super::drive::drive;
use super::endpoint::Endpoint;
use super::trust::Protocol;
use engine::errors::format_chain;

/// Opens streams through a sandbox host.
pub(super) struct UpgradeConnector {
    /// The stream URL of one sandbox.
    endpoint: Endpoint,
    /// The key of the action server, which the sandbox host requires too.
    key: HeaderValue,
}

impl UpgradeConnector {
    pub(super) fn new(endpoint: Endpoint, key: HeaderValue) -> Self {
        Self { endpoint, key }
    }

    fn request(&self) -> Request<Empty<Bytes>> {
        let url = &self.endpoint.url;
        let mut request = Request::new(Empty::new());
        // Cannot fail: it was parsed as a part of the URL before.
        *request.uri_mut() = url.path("").parse().unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static(STREAM_PROTOCOL));
        headers.insert(KEY_HEADER, self.key.clone());
        if let Ok(host) = HeaderValue::from_str(url.authority()) {
            headers.insert(header::HOST, host);
        }
        request
    }

    fn unknown(&self, reason: impl std::fmt::Display) -> ConnectError {
        ConnectError::Unknown(format!(
            "cannot open a stream at {}: {reason}",
            self.endpoint.url
        ))
    }

    fn failed(&self, reason: impl std::fmt::Display) -> ConnectError {
        let subject = format!("a stream at {}", self.endpoint.url);
        ConnectError::Failed {
            operation: "open",
            subject,
            source: io::Error::other(reason.to_string()),
        }
    }
}

#[async_trait]
impl Connector for UpgradeConnector {
    async fn connect(&self) -> Result<Box<dyn ByteStream>, ConnectError> {
        let stream = self.endpoint.open(Protocol::Http1).await?;
        let unknown = |error: hyper::Error| self.unknown(format_chain(&error));
        let (mut requests, driver) = hyper::client::conn::http1::Builder::new()
            .max_headers(api::MAX_HEADERS)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(unknown)?;
        let mut driver = std::pin::pin!(driver.with_upgrades().fuse());
        let response = drive(requests.send_request(self.request()), &mut driver).await;
        let response = response.map_err(unknown)?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let error = drive(api::read_error(response), &mut driver).await;
            return Err(match error.code {
                ApiErrorCode::Lost | ApiErrorCode::NotFound => {
                    ConnectError::Gone(error.to_string())
                }
                ApiErrorCode::Paused => ConnectError::Paused(error.to_string()),
                // The runtime responds, and the server does not.
                ApiErrorCode::Unavailable if error.status == StatusCode::BAD_GATEWAY => {
                    self.failed(error)
                }
                _ => self.unknown(error),
            });
        }
        let upgraded = drive(hyper::upgrade::on(response), &mut driver).await;
        Ok(Box::new(TokioIo::new(upgraded.map_err(unknown)?)))
    }

    /// A sandbox host may restart while its sandboxes continue.
    fn reconnect_timeout(&self) -> Duration {
        RECONNECT_TIMEOUT
    }
}
