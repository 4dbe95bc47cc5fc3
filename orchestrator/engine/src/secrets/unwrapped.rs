//! Text without its line endings, because `base64` and other programs wrap their output after 76 or
//! 64 letters; also without what other programs put before a line: indentation, the number of
//! `cat -n`, `grep -n` and the editor, the sign of a diff.

use std::borrow::Cow;

/// Line endings in JSON and in JSON within JSON. Longest first.
const LINE_ENDS_IN_JSON: [&[u8]; 3] = [b"\\r\\n", b"\\\\n", b"\\n"];

/// Ends of a line number, also in JSON and in JSON within JSON. Longest first.
const NUMBER_ENDS: [&[u8]; 5] = [b"\\\\t", b"\\t", b"\t", b":", b"-"];

/// Indentation, also in JSON and in JSON within JSON. Longest first.
const BLANKS: [&[u8]; 4] = [b"\\\\t", b"\\t", b"\t", b" "];

/// Maximum length of the indentation of a line, in blanks. A stream keeps it until the line goes
/// on.
const MAX_INDENTATION: usize = 64;

/// Maximum length of a line number, in digits.
const MAX_NUMBER_LENGTH: usize = 9;

pub(super) struct UnwrappedText<'a> {
    bytes: &'a [u8],
    pub(super) letters: Cow<'a, [u8]>,
    /// For each line ending, the number of preceding letters, and the total length of the line
    /// endings up to there. Sorted.
    ends: Vec<(usize, usize)>,
}

impl<'a> UnwrappedText<'a> {
    /// Returns `bytes` as they are, and without what precedes lines if there is anything: a plus
    /// and digits are letters of base64 too.
    pub(super) fn readings(bytes: &'a [u8]) -> Vec<Self> {
        let (whole, _) = Self::new(bytes, |_| 0);
        let (stripped, is_stripped) = Self::new(bytes, line_prefix);
        if is_stripped {
            vec![whole, stripped]
        } else {
            vec![whole]
        }
    }

    /// Removes the line endings of `bytes`, including an incomplete one at the end, and so many
    /// bytes at the start of the next line. Of several line endings in a row it removes only one,
    /// because base64 has no empty lines. Also returns whether any line has such a start.
    fn new(bytes: &'a [u8], line_prefix: impl Fn(&[u8]) -> usize) -> (Self, bool) {
        let mut unwrapped = Self {
            bytes,
            letters: Cow::Borrowed(bytes),
            ends: Vec::new(),
        };
        let (mut letters, mut copied, mut removed) = (Vec::new(), 0, 0);
        let mut has_prefixes = false;
        for at in memchr::memchr3_iter(b'\r', b'\n', b'\\', bytes) {
            // Within the last line ending, or directly after it.
            if at < copied || (at == copied && removed > 0) {
                continue;
            }
            let Some(length) = line_end(bytes.get(at..).unwrap_or_default()) else {
                continue;
            };
            letters.extend_from_slice(bytes.get(copied..at).unwrap_or_default());
            let prefix = line_prefix(bytes.get(at + length..).unwrap_or_default());
            has_prefixes |= prefix > 0;
            let length = length + prefix;
            (copied, removed) = (at + length, removed + length);
            unwrapped.ends.push((letters.len(), removed));
        }
        if removed > 0 {
            letters.extend_from_slice(bytes.get(copied..).unwrap_or_default());
            unwrapped.letters = Cow::Owned(letters);
        }
        (unwrapped, has_prefixes)
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

/// Returns the length of what precedes the letters of a line. At the end of the text it may be
/// incomplete.
fn line_prefix(line: &[u8]) -> usize {
    let sign = usize::from(matches!(line, [b'-' | b'+', ..]));
    let unsigned = line.get(sign..).unwrap_or_default();
    let mut numbered = unsigned;
    for _ in 0..MAX_INDENTATION {
        let Some(blank) = BLANKS
            .iter()
            .find_map(|blank| numbered.strip_prefix(*blank))
        else {
            break;
        };
        numbered = blank;
    }
    let blanks = unsigned.len() - numbered.len();
    let digits = numbered.iter().take_while(|byte| byte.is_ascii_digit());
    let digits = digits.take(MAX_NUMBER_LENGTH + 1).count();
    let rest = numbered.get(digits..).unwrap_or_default();
    let end = NUMBER_ENDS
        .iter()
        .find(|end| rest.starts_with(end) || end.starts_with(rest));
    let number = match end {
        Some(end) if (1..=MAX_NUMBER_LENGTH).contains(&digits) => {
            digits + end.len().min(rest.len())
        }
        _ => 0,
    };
    sign + blanks + number
}
