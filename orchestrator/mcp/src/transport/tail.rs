//! The end of what a server writes for people.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// How much of it is kept, in bytes.
const KEPT: usize = 16 << 10;

/// Cloning shares it.
#[derive(Clone, Default)]
pub(super) struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let too_much = kept.len().saturating_sub(KEPT);
        kept.drain(..too_much);
    }

    pub(super) fn text(&self) -> String {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(kept.make_contiguous()).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_is_kept() {
        let tail = Tail::default();
        tail.push(&vec![b'a'; KEPT]);
        tail.push(b"the end\n");
        assert!(tail.text().ends_with("athe end"));
        assert_eq!(tail.text().len(), KEPT - 1);
    }
}
