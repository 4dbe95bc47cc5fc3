//! What a client of a socket has been sent and has not taken yet. socketioxide has a queue that is
//! bounded by the number of its packets only, of which each may have megabytes, and does not say
//! when one has left it.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use futures_util::stream;
use tokio::sync::watch;

/// Length of the parts of a polled body. A part is taken when the client has read most of those
/// before it.
const CHUNK_BYTES: usize = 64 << 10;

/// The number of bytes that a client has not taken. Clones are about the same client.
#[derive(Clone, Default)]
pub(crate) struct Unread(Arc<watch::Sender<usize>>);

impl Unread {
    /// Adds the length of a message that was queued.
    pub(crate) fn add(&self, bytes: usize) {
        self.0.send_modify(|unread| *unread += bytes);
    }

    /// Subtracts what the client has taken, which includes what surrounds messages. That of the
    /// messages in the queue is the error of the number.
    pub(crate) fn subtract(&self, bytes: usize) {
        self.0.send_if_modified(|unread| {
            let before = *unread;
            *unread = before.saturating_sub(bytes);
            *unread != before
        });
    }

    /// Waits until the client has taken all but this number of bytes.
    pub(crate) async fn wait_below(&self, bytes: usize) {
        // An error means that there is no sender, which is this value.
        let _ = self.0.subscribe().wait_for(|unread| *unread < bytes).await;
    }

    /// Returns a body that subtracts what the client takes of it.
    pub(crate) fn counted(&self, body: Bytes) -> Body {
        let parts = stream::unfold((self.clone(), body), |(unread, mut rest)| async move {
            if rest.is_empty() {
                return None;
            }
            let part = rest.split_to(CHUNK_BYTES.min(rest.len()));
            unread.subtract(part.len());
            Some((Ok::<_, std::convert::Infallible>(part), (unread, rest)))
        });
        Body::from_stream(parts)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn bytes_are_unread_until_they_are_taken() {
        let unread = Unread::default();
        let is_below = |bytes| unread.wait_below(bytes).now_or_never().is_some();
        // A ping.
        unread.subtract(3);
        unread.add(10);
        assert!(is_below(11) && !is_below(10));
        let waiting = tokio::spawn({
            let unread = unread.clone();
            async move { unread.wait_below(5).await }
        });
        unread.subtract(6);
        waiting.await.unwrap();

        unread.subtract(4);
        unread.add(3 * CHUNK_BYTES);
        let mut body = unread.counted(vec![0; 3 * CHUNK_BYTES].into());
        assert!(!is_below(3 * CHUNK_BYTES));
        body.frame().await.unwrap().unwrap();
        assert!(is_below(2 * CHUNK_BYTES + 1) && !is_below(2 * CHUNK_BYTES));
        assert_eq!(
            body.collect().await.unwrap().to_bytes().len(),
            2 * CHUNK_BYTES
        );
        assert!(is_below(1));
    }
}
