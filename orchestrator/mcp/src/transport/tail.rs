//! The end of what a server writes for people.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How much of it is kept, in bytes.
const KEPT: usize = 16 << 10;

/// How long the rest of it is waited for: it comes another way than the end of the answers.
const MOMENT: Duration = Duration::from_millis(300);

/// Cloning shares it.
#[derive(Clone, Default)]
pub(super) struct Tail {
    bytes: Arc<Mutex<VecDeque<u8>>>,
    ended: CancellationToken,
}

impl Tail {
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut kept = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let too_much = kept.len().saturating_sub(KEPT);
        kept.drain(..too_much);
    }

    /// Nothing more comes.
    pub(super) fn end(&self) {
        self.ended.cancel();
    }

    /// All that is kept, after a moment in which the rest of it may come.
    pub(super) async fn text(&self) -> String {
        let _ = timeout(MOMENT, self.ended.cancelled()).await;
        let mut kept = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(kept.make_contiguous()).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_the_end_is_kept() {
        let tail = Tail::default();
        tail.push(&vec![b'a'; KEPT]);
        let late = tail.clone();
        let writing = tokio::spawn(async move {
            tokio::time::sleep(MOMENT / 2).await;
            late.push(b"the end\n");
            late.end();
        });
        let text = tail.text().await;
        assert!(text.ends_with("athe end"), "{}", text.len());
        assert_eq!(text.len(), KEPT - 1);
        writing.await.unwrap();
    }
}
