//! The beginning and the end of a text of any length, in bounded memory.

/// What was folded since the last [`super::Fold::take`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Folded {
    /// The first characters.
    pub(crate) head: String,
    /// The last characters; follows `head` directly if nothing is missing.
    pub(crate) tail: String,
    /// How many characters between them are gone.
    pub(crate) dropped: u64,
}

/// The first half and the last half of `limit` characters.
pub(super) struct Kept {
    limit: usize,
    head: String,
    head_chars: usize,
    /// The last characters, and some before them: they are dropped by the half, because each drop moves the rest.
    tail: String,
    tail_chars: usize,
    dropped: usize,
}

impl Kept {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, head: String::new(), head_chars: 0, tail: String::new(), tail_chars: 0, dropped: 0 }
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

    /// ASCII is counted without a look at it.
    pub(super) fn extend_ascii(&mut self, ascii: &str) {
        let (head, tail) = ascii.split_at(ascii.len().min(self.head_room()));
        self.head.push_str(head);
        self.head_chars += head.len();
        // Of more than is kept only the end is taken.
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

    /// Drops what is too much, once it is as much again as may stay.
    fn shorten(&mut self) {
        if self.tail_chars >= 2 * self.tail_limit() {
            self.drop_excess();
        }
    }

    fn drop_excess(&mut self) {
        let excess = self.tail_chars.saturating_sub(self.tail_limit());
        let bytes = match self.tail.len() == self.tail_chars {
            true => excess,
            false => self.tail.char_indices().nth(excess).map_or(self.tail.len(), |(at, _)| at),
        };
        self.tail.drain(..bytes);
        self.tail_chars -= excess;
        self.dropped += excess;
    }

    pub(super) fn take(&mut self) -> Folded {
        let mut taken = std::mem::replace(self, Self::new(self.limit));
        taken.drop_excess();
        Folded { head: taken.head, tail: taken.tail, dropped: taken.dropped as u64 }
    }

    /// How many bytes of the tail there is memory for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.tail.capacity()
    }
}
