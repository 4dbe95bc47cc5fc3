//! Text without its line endings, because `base64` and other programs wrap their output after 76 or
//! 64 letters.

use std::borrow::Cow;

/// Line endings in JSON and in JSON within JSON. Longest first.
const LINE_ENDS_IN_JSON: [&[u8]; 3] = [b"\\r\\n", b"\\\\n", b"\\n"];

pub(super) struct UnwrappedText<'a> {
    bytes: &'a [u8],
    pub(super) letters: Cow<'a, [u8]>,
    /// For each line ending, the number of preceding letters, and the total length of the line
    /// endings up to there. Sorted.
    ends: Vec<(usize, usize)>,
}

impl<'a> UnwrappedText<'a> {
    /// Removes the line endings of `bytes`, including an incomplete one at the end. Of several in a
    /// row it removes only one, because base64 has no empty lines.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let mut unwrapped = Self {
            bytes,
            letters: Cow::Borrowed(bytes),
            ends: Vec::new(),
        };
        let (mut letters, mut copied, mut removed) = (Vec::new(), 0, 0);
        for at in memchr::memchr3_iter(b'\r', b'\n', b'\\', bytes) {
            // Within the last line ending, or directly after it.
            if at < copied || (at == copied && removed > 0) {
                continue;
            }
            let Some(length) = line_end(bytes.get(at..).unwrap_or_default()) else {
                continue;
            };
            letters.extend_from_slice(bytes.get(copied..at).unwrap_or_default());
            (copied, removed) = (at + length, removed + length);
            unwrapped.ends.push((letters.len(), removed));
        }
        if removed > 0 {
            letters.extend_from_slice(bytes.get(copied..).unwrap_or_default());
            unwrapped.letters = Cow::Owned(letters);
        }
        unwrapped
    }

    /// Returns the position of a letter in the original text, or its end if there is no such
    /// letter.
    pub(super) fn original_position(&self, letter: usize) -> usize {
        if letter >= self.letters.len() {
            return self.bytes.len();
        }
        let before = self.ends.partition_point(|(letters, _)| *letters <= letter);
        let removed = before.checked_sub(1).and_then(|last| self.ends.get(last));
        letter + removed.map_or(0, |(_, bytes)| *bytes)
    }
}

/// Returns the length of the line ending at the start of `bytes`, in a file, on a terminal, or in
/// JSON.
fn line_end(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [b'\n', ..] | [b'\r'] => Some(1),
        [b'\r', b'\n', ..] => Some(2),
        [b'\\', ..] => {
            let mut ends = LINE_ENDS_IN_JSON.iter();
            let found = ends.find(|end| bytes.starts_with(end) || end.starts_with(bytes))?;
            Some(found.len().min(bytes.len()))
        }
        _ => None,
    }
}
