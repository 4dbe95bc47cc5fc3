//! The start and the end of a text of any length, in bounded memory.

/// The text since the last [`super::OutputFold::take_text`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FoldedText {
    /// The first characters.
    pub(crate) head: String,
    /// The last characters; follows `head` directly if nothing was dropped.
    pub(crate) tail: String,
    /// Number of characters that were dropped between them.
    pub(crate) dropped: u64,
}

/// Keeps the first and the last half of `limit` characters.
pub(super) struct TextBuffer {
    limit: usize,
    head: String,
    head_chars: usize,
    /// The last characters, and some before them. Half of it is dropped at a time, because each
    /// drop moves the rest.
    tail: String,
    tail_chars: usize,
    dropped: usize,
}

impl TextBuffer {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            head: String::new(),
            head_chars: 0,
            tail: String::new(),
            tail_chars: 0,
            dropped: 0,
        }
    }

    pub(super) fn push(&mut self, char: char) {
        if self.head_chars < self.limit / 2 {
            self.head.push(char);
            self.head_chars += 1;
        } else {
            self.tail.push(char);
            self.tail_chars += 1;
            self.shorten();
        }
    }

    /// Appends ASCII, whose characters need not be counted.
    pub(super) fn extend_ascii(&mut self, ascii: &str) {
        let (head, tail) = ascii.split_at(ascii.len().min(self.head_room()));
        self.head.push_str(head);
        self.head_chars += head.len();
        // Only the end of a long text is kept.
        let skipped = tail.len().saturating_sub(self.tail_limit());
        if skipped > 0 {
            self.dropped += self.tail_chars + skipped;
            self.tail.clear();
            self.tail_chars = 0;
        }
        self.tail.push_str(&tail[skipped..]);
        self.tail_chars += tail.len() - skipped;
        self.shorten();
    }

    fn head_room(&self) -> usize {
        (self.limit / 2).saturating_sub(self.head_chars)
    }

    fn tail_limit(&self) -> usize {
        self.limit - self.limit / 2
    }

    /// Drops the excess once the tail has twice its maximum length.
    fn shorten(&mut self) {
        if self.tail_chars >= 2 * self.tail_limit() {
            self.drop_excess();
        }
    }

    fn drop_excess(&mut self) {
        let excess = self.tail_chars.saturating_sub(self.tail_limit());
        let bytes = match self.tail.len() == self.tail_chars {
            true => excess,
            false => self
                .tail
                .char_indices()
                .nth(excess)
                .map_or(self.tail.len(), |(at, _)| at),
        };
        self.tail.drain(..bytes);
        self.tail_chars -= excess;
        self.dropped += excess;
    }

    pub(super) fn take_text(&mut self) -> FoldedText {
        let mut taken = std::mem::replace(self, Self::new(self.limit));
        taken.drop_excess();
        FoldedText {
            head: taken.head,
            tail: taken.tail,
            dropped: taken.dropped as u64,
        }
    }

    /// Returns the capacity of the tail in bytes.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.tail.capacity()
    }
}
