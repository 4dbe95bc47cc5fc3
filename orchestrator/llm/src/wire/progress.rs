//! Reports the text of a response while it arrives: bounded, and one report per chunk of the
//! stream.

use engine::llm::LlmProgress;

/// Maximum length of the reported text of a response, in bytes.
const MAX_PROGRESS_BYTES: usize = 1 << 20;

/// Maximum length of a report, in bytes: receivers buffer some of them.
const MAX_CHUNK_BYTES: usize = 4096;

/// Text that is not reported yet.
#[derive(Debug)]
pub(crate) struct ProgressBuffer {
    reasoning: String,
    text: String,
    bytes_left: usize,
}

impl Default for ProgressBuffer {
    fn default() -> Self {
        Self {
            reasoning: String::new(),
            text: String::new(),
            bytes_left: MAX_PROGRESS_BYTES,
        }
    }
}

impl ProgressBuffer {
    pub(crate) fn text(&mut self, chunk: &str) {
        self.text.push_str(self.truncate(chunk));
        self.bytes_left = self.bytes_left.saturating_sub(chunk.len());
    }

    pub(crate) fn reasoning(&mut self, chunk: &str) {
        self.reasoning.push_str(self.truncate(chunk));
        self.bytes_left = self.bytes_left.saturating_sub(chunk.len());
    }

    pub(super) fn report(&mut self, on_progress: &(dyn Fn(LlmProgress) + Send + Sync)) {
        split(&std::mem::take(&mut self.reasoning))
            .for_each(|chunk| on_progress(LlmProgress::Reasoning(chunk)));
        split(&std::mem::take(&mut self.text))
            .for_each(|chunk| on_progress(LlmProgress::Text(chunk)));
    }

    fn truncate<'a>(&self, chunk: &'a str) -> &'a str {
        &chunk[..chunk.floor_char_boundary(self.bytes_left)]
    }
}

fn split(mut text: &str) -> impl Iterator<Item = String> {
    std::iter::from_fn(move || {
        let (chunk, rest) = text.split_at(text.floor_char_boundary(MAX_CHUNK_BYTES));
        text = rest;
        (!chunk.is_empty()).then(|| chunk.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn report(buffer: &mut ProgressBuffer) -> Vec<LlmProgress> {
        let reports = Mutex::new(Vec::new());
        buffer.report(&|progress| reports.lock().unwrap().push(progress));
        reports.into_inner().unwrap()
    }

    #[test]
    fn texts_of_one_chunk_are_one_report() {
        let mut buffer = ProgressBuffer::default();
        buffer.reasoning("hm");
        buffer.text("Hel");
        buffer.text("lo");
        assert_eq!(
            report(&mut buffer),
            [
                LlmProgress::Reasoning("hm".into()),
                LlmProgress::Text("Hello".into())
            ]
        );
        assert_eq!(report(&mut buffer), []);
    }

    #[test]
    fn each_report_and_their_total_are_bounded() {
        let mut buffer = ProgressBuffer::default();
        buffer.text(&"ü".repeat(MAX_PROGRESS_BYTES));
        buffer.text("no more");
        let lengths = report(&mut buffer)
            .into_iter()
            .map(|progress| match progress {
                LlmProgress::Text(text) => text.len(),
                other => panic!("{other:?}"),
            });
        let lengths: Vec<usize> = lengths.collect();
        assert_eq!(lengths.iter().sum::<usize>(), MAX_PROGRESS_BYTES);
        assert!(lengths.iter().all(|length| *length <= MAX_CHUNK_BYTES));
    }
}
