//! The end of a server's stderr.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Maximum size, in bytes.
const MAX_BYTES: usize = 16 << 10;

/// Time to wait for the end of stderr, which may arrive after the end of stdout.
const END_TIMEOUT: Duration = Duration::from_millis(300);

/// The end of a stream. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Tail {
    bytes: Arc<Mutex<VecDeque<u8>>>,
    ended: CancellationToken,
}

impl Tail {
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut kept = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let too_much = kept.len().saturating_sub(MAX_BYTES);
        kept.drain(..too_much);
    }

    /// Marks the stream as complete.
    pub(super) fn end(&self) {
        self.ended.cancel();
    }

    /// Returns the text, once the stream is complete or the timeout has passed.
    pub(super) async fn text(&self) -> String {
        let _ = timeout(END_TIMEOUT, self.ended.cancelled()).await;
        let mut kept = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(kept.make_contiguous()).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_the_end_of_output_is_kept() {
        let tail = Tail::default();
        tail.push(&vec![b'a'; MAX_BYTES]);
        let late = tail.clone();
        let writing = tokio::spawn(async move {
            tokio::time::sleep(END_TIMEOUT / 2).await;
            late.push(b"the end\n");
            late.end();
        });
        let text = tail.text().await;
        assert!(text.ends_with("athe end"), "{}", text.len());
        assert_eq!(text.len(), MAX_BYTES - 1);
        writing.await.unwrap();
    }
}
