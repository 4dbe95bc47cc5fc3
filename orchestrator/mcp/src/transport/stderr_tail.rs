//! The end of a server's stderr.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Maximum number of retained bytes.
const MAX_BYTES: usize = 16 << 10;

/// Time to wait for the end of stderr, which may arrive after the end of stdout.
const END_TIMEOUT: Duration = Duration::from_millis(300);

/// The last [`MAX_BYTES`] of stderr. Clones share them.
#[derive(Clone, Default)]
pub(super) struct StderrTail {
    bytes: Arc<Mutex<VecDeque<u8>>>,
    ended: CancellationToken,
}

impl StderrTail {
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut tail = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(bytes);
        let excess = tail.len().saturating_sub(MAX_BYTES);
        tail.drain(..excess);
    }

    /// Marks the stream as complete.
    pub(super) fn end(&self) {
        self.ended.cancel();
    }

    /// Waits for the end of the stream, up to [`END_TIMEOUT`], and returns the text.
    pub(super) async fn text(&self) -> String {
        let _ = timeout(END_TIMEOUT, self.ended.cancelled()).await;
        let mut tail = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(tail.make_contiguous())
            .trim()
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_the_end_of_output_is_kept() {
        let tail = StderrTail::default();
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
