//! What of an answer is told while it arrives: bounded, and no more than one notice of each kind for all that came at
//! once.

use engine::llm::LlmProgress;

/// Nobody reads more than this as it is written, in bytes. The answer itself has a bound of its own.
const TOLD_BYTES: usize = 1 << 20;

/// The longest notice, in bytes: listeners keep some until they are read.
const PIECE_BYTES: usize = 4096;

/// Collects what came; then tells it.
#[derive(Debug)]
pub(crate) struct Pieces {
    reasoning: String,
    text: String,
    bytes_left: usize,
}

impl Default for Pieces {
    fn default() -> Self {
        Self { reasoning: String::new(), text: String::new(), bytes_left: TOLD_BYTES }
    }
}

impl Pieces {
    pub(crate) fn text(&mut self, piece: &str) {
        self.text.push_str(self.bounded(piece));
        self.bytes_left = self.bytes_left.saturating_sub(piece.len());
    }

    pub(crate) fn reasoning(&mut self, piece: &str) {
        self.reasoning.push_str(self.bounded(piece));
        self.bytes_left = self.bytes_left.saturating_sub(piece.len());
    }

    pub(super) fn tell(&mut self, on_progress: &(dyn Fn(LlmProgress) + Send + Sync)) {
        split(&std::mem::take(&mut self.reasoning))
            .for_each(|piece| on_progress(LlmProgress::Reasoning(piece)));
        split(&std::mem::take(&mut self.text)).for_each(|piece| on_progress(LlmProgress::Text(piece)));
    }

    fn bounded<'a>(&self, piece: &'a str) -> &'a str {
        &piece[..piece.floor_char_boundary(self.bytes_left)]
    }
}

fn split(mut text: &str) -> impl Iterator<Item = String> {
    std::iter::from_fn(move || {
        let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE_BYTES));
        text = rest;
        (!piece.is_empty()).then(|| piece.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn told(pieces: &mut Pieces) -> Vec<LlmProgress> {
        let told = Mutex::new(Vec::new());
        pieces.tell(&|progress| told.lock().unwrap().push(progress));
        told.into_inner().unwrap()
    }

    #[test]
    fn what_came_at_once_is_told_at_once() {
        let mut pieces = Pieces::default();
        pieces.reasoning("hm");
        pieces.text("Hel");
        pieces.text("lo");
        assert_eq!(
            told(&mut pieces),
            [LlmProgress::Reasoning("hm".into()), LlmProgress::Text("Hello".into())]
        );
        assert_eq!(told(&mut pieces), []);
    }

    #[test]
    fn notices_and_all_of_them_together_are_bounded() {
        let mut pieces = Pieces::default();
        pieces.text(&"ü".repeat(TOLD_BYTES));
        pieces.text("no more");
        let lengths = told(&mut pieces).into_iter().map(|progress| match progress {
            LlmProgress::Text(text) => text.len(),
            other => panic!("{other:?}"),
        });
        let lengths: Vec<usize> = lengths.collect();
        assert_eq!(lengths.iter().sum::<usize>(), TOLD_BYTES);
        assert!(lengths.iter().all(|length| *length <= PIECE_BYTES));
    }
}
