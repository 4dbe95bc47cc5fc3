//! Limits the unanswered requests of a server. rmcp answers each request in its own task, so a
//! server that sends requests without reading the responses would exhaust the memory. Such a
//! connection is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rmcp::RoleClient;
use rmcp::model::JsonRpcMessage;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

/// Maximum number of requests whose responses the server has not read.
const MAX_UNANSWERED: usize = 64;

/// Transport that ends when [`MAX_UNANSWERED`] requests are unanswered.
pub(super) struct UnansweredLimit<T> {
    inner: T,
    unanswered: Arc<AtomicUsize>,
}

impl<T> UnansweredLimit<T> {
    pub(super) fn new(inner: T) -> Self {
        Self {
            inner,
            unanswered: Arc::default(),
        }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for UnansweredLimit<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        let is_response = matches!(
            message,
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)
        );
        let sending = self.inner.send(message);
        let unanswered = Arc::clone(&self.unanswered);
        async move {
            let sent = sending.await;
            if is_response {
                // A response may belong to a request that was not counted.
                let _ = unanswered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                    count.checked_sub(1)
                });
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.inner.receive().await?;
        let is_request = matches!(message, JsonRpcMessage::Request(_));
        if is_request && self.unanswered.fetch_add(1, Ordering::Relaxed) >= MAX_UNANSWERED {
            tracing::debug!("closing the connection to an MCP server that reads no responses");
            return None;
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}
