//! What is shown of a cell's output: all up to its mark, folded to the text that an agent reads.

use uuid::Uuid;

use crate::shell::{Fold, OutputSink, SHOWN_CHARS, content};

/// The output of one cell.
pub(super) struct Shown {
    fold: Fold,
    sink: OutputSink,
    /// What the kernel writes after it. A program that prints cannot guess it, but it is no secret: the cell runs in the
    /// interpreter that holds it.
    mark: String,
    /// The end of what came, if the mark may begin there.
    held: Vec<u8>,
    is_over: bool,
}

impl Shown {
    pub(super) fn new(sink: OutputSink) -> Self {
        let (fold, mark) = (Fold::new(SHOWN_CHARS), format!("\0{}\n", Uuid::now_v7().simple()));
        Self { fold, sink, mark, held: Vec::new(), is_over: false }
    }

    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// Whether the mark has come. What comes after it is nobody's.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Reads on.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        if self.is_over {
            return;
        }
        self.held.extend_from_slice(bytes);
        let mark = self.held.windows(self.mark.len()).position(|window| window == self.mark.as_bytes());
        self.is_over = mark.is_some();
        let end = mark.unwrap_or_else(|| self.held.len() - self.begun());
        let shown = self.held.drain(..end);
        self.fold.feed(shown.as_slice());
        (self.sink)(shown.as_slice());
    }

    /// How many bytes at the end may be the beginning of the mark.
    fn begun(&self) -> usize {
        let may_begin = |length: &usize| {
            self.mark.get(..*length).is_some_and(|mark| self.held.ends_with(mark.as_bytes()))
        };
        (1..self.mark.len()).rev().find(may_begin).unwrap_or(0)
    }

    /// The text.
    pub(super) fn text(mut self) -> String {
        // Without a mark it was none that seemed to begin.
        self.fold.feed(if self.is_over { &[] } else { &self.held });
        let folded = self.fold.take();
        let dropped = folded.dropped;
        let mut text = content(folded);
        if dropped > 0 {
            text += &format!("\n[{dropped} characters were left out of the middle.]");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn output_is_cut_at_the_mark_however_it_comes() {
        let bytes = b"one\0\0ma\x1b[1mtwo\0mark\nlate";
        for size in 1..=bytes.len() {
            let heard = Arc::new(Mutex::new(Vec::new()));
            let sink = Arc::clone(&heard);
            let mut shown = Shown::new(Box::new(move |bytes| sink.lock().unwrap().extend_from_slice(bytes)));
            shown.mark = "\0mark\n".to_owned();
            bytes.chunks(size).for_each(|chunk| shown.take(chunk));
            assert!(shown.is_over());
            assert_eq!(*heard.lock().unwrap(), b"one\0\0ma\x1b[1mtwo");
            assert_eq!(shown.text(), "onematwo");
        }
    }
}
