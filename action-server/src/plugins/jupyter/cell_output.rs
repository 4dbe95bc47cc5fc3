//! The output of a cell: everything up to its end mark, converted to the text that the agent reads.

use uuid::Uuid;

use crate::shell::{OutputFold, OutputSink, SHOWN_CHARS, content};

/// The output of one cell.
pub(super) struct CellOutput {
    fold: OutputFold,
    sink: OutputSink,
    /// The mark that the kernel writes after the output. Other programs cannot guess it. It is not
    /// a secret, because the cell runs in the interpreter that has it.
    mark: String,
    /// The end of the output, which may be the start of the mark.
    held: Vec<u8>,
    is_over: bool,
}

impl CellOutput {
    pub(super) fn new(sink: OutputSink) -> Self {
        let (fold, mark) = (
            OutputFold::new(SHOWN_CHARS),
            format!("\0{}\n", Uuid::now_v7().simple()),
        );
        Self {
            fold,
            sink,
            mark,
            held: Vec::new(),
            is_over: false,
        }
    }

    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// Returns whether the mark was received. Later output is dropped.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Appends output.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.is_over {
            return;
        }
        self.held.extend_from_slice(bytes);
        let mark = self
            .held
            .windows(self.mark.len())
            .position(|window| window == self.mark.as_bytes());
        self.is_over = mark.is_some();
        let end = mark.unwrap_or_else(|| self.held.len() - self.partial_mark_bytes());
        let shown = self.held.drain(..end);
        self.fold.feed(shown.as_slice());
        (self.sink)(shown.as_slice());
    }

    /// Returns how many bytes at the end may be the start of the mark.
    fn partial_mark_bytes(&self) -> usize {
        let is_start = |length: &usize| {
            self.mark
                .get(..*length)
                .is_some_and(|mark| self.held.ends_with(mark.as_bytes()))
        };
        (1..self.mark.len()).rev().find(is_start).unwrap_or(0)
    }

    /// Returns the text.
    pub(super) fn text(mut self) -> String {
        // Without a mark, the held bytes are output.
        self.fold.feed(if self.is_over { &[] } else { &self.held });
        let folded = self.fold.take_text();
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
    fn output_is_cut_at_the_mark_for_any_chunk_size() {
        let bytes = b"one\0\0ma\x1b[1mtwo\0mark\nlate";
        for size in 1..=bytes.len() {
            let received = Arc::new(Mutex::new(Vec::new()));
            let sink = Arc::clone(&received);
            let mut shown = CellOutput::new(Box::new(move |bytes| {
                sink.lock().unwrap().extend_from_slice(bytes);
            }));
            shown.mark = "\0mark\n".to_owned();
            bytes.chunks(size).for_each(|chunk| shown.push(chunk));
            assert!(shown.is_over());
            assert_eq!(*received.lock().unwrap(), b"one\0\0ma\x1b[1mtwo");
            assert_eq!(shown.text(), "onematwo");
        }
    }
}
