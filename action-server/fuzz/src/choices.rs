//! Choices, read from the fuzzer's bytes. After the last byte, every choice is the first.

pub(super) struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *byte
    }

    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    /// Returns a number below `end`, or 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end.max(1)
    }

    /// Returns `true` for one of 16 bytes.
    pub(super) fn is_rare(&mut self) -> bool {
        self.byte() % 16 == 15
    }

    /// Returns some bytes, possibly repeated.
    pub(super) fn content(&mut self) -> Vec<u8> {
        let (length, times) = (self.below(32), self.one_of(&[1, 1, 1, 2, 50, 200]));
        let (content, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        content.repeat(times)
    }
}
