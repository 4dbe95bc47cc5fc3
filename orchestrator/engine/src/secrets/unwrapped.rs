//! Text without the ends of its lines: `base64` begins a new one after 76 letters, others after 64.

use std::borrow::Cow;

/// What ends a line in JSON and in JSON within JSON. Longest first.
const LINE_ENDS_IN_JSON: [&[u8]; 3] = [b"\\r\\n", b"\\\\n", b"\\n"];

pub(super) struct Unwrapped<'a> {
    bytes: &'a [u8],
    pub(super) letters: Cow<'a, [u8]>,
    /// How many letters stand before each line end, and how many bytes the line ends have up to there. In order.
    ends: Vec<(usize, usize)>,
}

impl<'a> Unwrapped<'a> {
    /// Of several line ends in a row one is left out: between lines of base64 there are no empty ones. So is one that the
    /// text breaks off in.
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        let mut unwrapped = Self { bytes, letters: Cow::Borrowed(bytes), ends: Vec::new() };
        let (mut letters, mut copied, mut left_out) = (Vec::new(), 0, 0);
        for at in memchr::memchr3_iter(b'\r', b'\n', b'\\', bytes) {
            // Inside of the last one, or right after it.
            if at < copied || (at == copied && left_out > 0) {
                continue;
            }
            let Some(length) = line_end(bytes.get(at..).unwrap_or_default()) else { continue };
            letters.extend_from_slice(bytes.get(copied..at).unwrap_or_default());
            (copied, left_out) = (at + length, left_out + length);
            unwrapped.ends.push((letters.len(), left_out));
        }
        if left_out > 0 {
            letters.extend_from_slice(bytes.get(copied..).unwrap_or_default());
            unwrapped.letters = Cow::Owned(letters);
        }
        unwrapped
    }

    /// Where in the text a letter stands; its end for one that is not there.
    pub(super) fn place(&self, letter: usize) -> usize {
        if letter >= self.letters.len() {
            return self.bytes.len();
        }
        let before = self.ends.partition_point(|(letters, _)| *letters <= letter);
        let left_out = before.checked_sub(1).and_then(|last| self.ends.get(last));
        letter + left_out.map_or(0, |(_, bytes)| *bytes)
    }
}

/// How long the line end is that this begins with: in a file, on a terminal, or in JSON.
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
