//! Streams to an action server that listens on a network itself, or behind something that speaks HTTP/2.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use engine::sandbox::ByteStream;

use super::endpoint::{Endpoint, OpenError};
use super::trust::Protocol;
use crate::connect::{ConnectError, Connector, ServerUrl};

/// A network may be away for longer than a server on this machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A host that answers, and refuses for so long, has no server any more; a proxy that starts again takes less.
const REFUSED_WAIT: Duration = Duration::from_secs(3);

/// Opens TCP or TLS.
pub(super) struct Direct {
    endpoint: Endpoint,
    /// Since when the host says that nobody listens. Locked for a moment, never across a wait.
    refused_since: Mutex<Option<Instant>>,
}

impl Direct {
    pub(super) fn to(endpoint: Endpoint) -> Self {
        Self { endpoint, refused_since: Mutex::new(None) }
    }

    fn failed(&self, error: OpenError) -> ConnectError {
        let mut since = self.refused_since.lock().unwrap_or_else(PoisonError::into_inner);
        if !error.is_refused() {
            *since = None;
            return error.into();
        }
        let since = *since.get_or_insert_with(Instant::now);
        if since.elapsed() >= REFUSED_WAIT { ConnectError::Gone(error.to_string()) } else { error.into() }
    }
}

#[async_trait]
impl Connector for Direct {
    async fn connect(&self) -> Result<Box<dyn ByteStream>, ConnectError> {
        match self.endpoint.open(Protocol::Http2).await {
            Ok(stream) => {
                *self.refused_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
                Ok(stream)
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    fn url(&self) -> Option<&ServerUrl> {
        Some(&self.endpoint.url)
    }

    fn reconnect_timeout(&self) -> Duration {
        PATIENCE
    }
}
