//! Streams to an action server that a sandbox-host lends: a request to the sandbox's address, upgraded.
//!
//! HTTP/1.1's `Upgrade`, because proxies that terminate TLS let it through as they do for WebSockets. What is spoken over
//! the stream is between us and the action server; the sandbox-host only carries it.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use engine::sandbox::ByteStream;
use futures_util::FutureExt as _;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use protocol::sandbox_api::KEY_HEADER;

use super::api;
use super::direct::PATIENCE;
use super::driven::driven;
use super::endpoint::Endpoint;
use super::trust::Protocol;
use super::wire::{ApiErrorCode, STREAM_PROTOCOL};
use crate::connect::{ConnectError, Connector};
use crate::placement::chain;

/// Opens streams through a sandbox-host.
pub(super) struct LentStream {
    /// Its address is that of one sandbox's stream.
    endpoint: Endpoint,
    /// The key of the action server, without which the sandbox-host opens nothing.
    key: HeaderValue,
}

impl LentStream {
    pub(super) fn new(endpoint: Endpoint, key: HeaderValue) -> Self {
        Self { endpoint, key }
    }

    fn request(&self) -> Request<Empty<Bytes>> {
        let url = &self.endpoint.url;
        let mut request = Request::new(Empty::new());
        // It was parsed as a part of an address before.
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

    fn failed(&self, reason: impl std::fmt::Display) -> ConnectError {
        let doing = format!("opening a stream at {}", self.endpoint.url);
        ConnectError::Failed { doing, source: io::Error::other(reason.to_string()) }
    }
}

#[async_trait]
impl Connector for LentStream {
    async fn connect(&self) -> Result<Box<dyn ByteStream>, ConnectError> {
        let stream = self.endpoint.open(Protocol::Http1).await?;
        let (mut requests, driver) = hyper::client::conn::http1::Builder::new()
            .max_headers(api::MAX_HEADERS)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.failed(chain(&error)))?;
        let mut driver = std::pin::pin!(driver.with_upgrades().fuse());
        let answer = driven(requests.send_request(self.request()), &mut driver).await;
        let answer = answer.map_err(|error| self.failed(chain(&error)))?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            let refused = driven(api::refusal(answer), &mut driver).await;
            return Err(match refused.code {
                ApiErrorCode::Lost | ApiErrorCode::NotFound => ConnectError::Gone(refused.to_string()),
                ApiErrorCode::Paused => ConnectError::Paused(refused.to_string()),
                _ => self.failed(refused),
            });
        }
        let upgraded = driven(hyper::upgrade::on(answer), &mut driver).await;
        Ok(Box::new(TokioIo::new(upgraded.map_err(|error| self.failed(chain(&error)))?)))
    }

    /// A sandbox-host may start again, and its sandboxes live on meanwhile.
    fn reconnect_timeout(&self) -> Duration {
        PATIENCE
    }
}
