//! Streams to an action server that listens on a network, itself or behind a proxy that supports
//! HTTP/2.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use engine::sandbox::ByteStream;
use sandbox_client::{ConnectError, Connector, ServerUrl};

use super::endpoint::{Endpoint, OpenError};
use super::trust::Protocol;

/// Longer than for a server on this machine, because a network may be down.
pub(super) const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A host that refuses connections for this long has no server any more. A proxy restarts faster.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(3);

/// Opens TCP or TLS connections.
pub(super) struct DirectConnector {
    endpoint: Endpoint,
    /// Since when the host refuses connections. The lock is never held across an await.
    refused_since: Mutex<Option<Instant>>,
}

impl DirectConnector {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            refused_since: Mutex::new(None),
        }
    }

    fn on_error(&self, error: OpenError) -> ConnectError {
        let mut since = self
            .refused_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !error.is_refused() {
            *since = None;
            return error.into();
        }
        let since = *since.get_or_insert_with(Instant::now);
        if since.elapsed() >= REFUSED_TIMEOUT {
            ConnectError::Gone(error.to_string())
        } else {
            error.into()
        }
    }
}

#[async_trait]
impl Connector for DirectConnector {
    async fn connect(&self) -> Result<Box<dyn ByteStream>, ConnectError> {
        match self.endpoint.open(Protocol::Http2).await {
            Ok(stream) => {
                *self
                    .refused_since
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = None;
                Ok(stream)
            }
            Err(error) => Err(self.on_error(error)),
        }
    }

    fn url(&self) -> Option<&ServerUrl> {
        Some(&self.endpoint.url)
    }

    fn reconnect_timeout(&self) -> Duration {
        RECONNECT_TIMEOUT
    }
}
