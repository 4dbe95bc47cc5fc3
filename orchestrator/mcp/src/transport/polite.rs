//! A bound on what a server may ask of us: the library answers each request by a task of its own, and a server that asks
//! without reading the answers would fill the memory with them. One that does is not listened to any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rmcp::RoleClient;
use rmcp::model::JsonRpcMessage;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

/// Requests of a server that may wait for their answers to be read.
const MOST_UNANSWERED: usize = 64;

/// Another transport, within the bound.
pub(super) struct Polite<T> {
    inner: T,
    unanswered: Arc<AtomicUsize>,
}

impl<T> Polite<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, unanswered: Arc::default() }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Polite<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        let answers = matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_));
        let sending = self.inner.send(message);
        let unanswered = Arc::clone(&self.unanswered);
        async move {
            let sent = sending.await;
            if answers {
                // Some answers are to what was no request; they make no room.
                let _ = unanswered
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.inner.receive().await?;
        let asks = matches!(message, JsonRpcMessage::Request(_));
        if asks && self.unanswered.fetch_add(1, Ordering::Relaxed) >= MOST_UNANSWERED {
            tracing::debug!("a tool server asks without reading the answers");
            return None;
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}
