//! Finds the session's marks in what the terminal shows: its prompts, and where a command's output ends.
//!
//! Pure and incremental: bytes in, pieces out, the same pieces however the bytes are cut. What is not a whole mark is output,
//! every byte of it. A mark proves nothing: it only says when to ask the shell, which answers on its
//! [channel](super::channel), and what was shown after the output of a command whose end is reported there.
//!
//! A mark is `ESC ] NAME ; BODY BEL`, an operating system command that no terminal knows: a screen that shows it by mistake
//! shows nothing.

/// The longest body is a nonce.
const MAX_BODY_BYTES: usize = 16;

const BELL: u8 = 0x07;

/// A stretch of the terminal's output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Bytes for people.
    Output(&'a [u8]),
    /// A mark with this body: empty at a prompt, a command's nonce at its end.
    Mark(&'a [u8]),
}

/// A mark of the session with this name.
pub(super) fn mark(name: &str, body: &str) -> String {
    format!("\x1b]{name};{body}\x07")
}

/// The reader of one terminal.
#[derive(Debug)]
pub(super) struct MarkReader {
    /// `ESC ] NAME ;`. ESC occurs in it only once, so a match that fails can only begin again at the failing byte.
    opening: Vec<u8>,
    /// As much of a mark as has come, at least the ESC; or nothing.
    begun: Vec<u8>,
}

impl MarkReader {
    /// Looks for a [`mark`] of `name`, which has no control characters.
    pub(super) fn new(name: &str) -> Self {
        Self { opening: format!("\x1b]{name};").into_bytes(), begun: Vec::new() }
    }

    /// Reads on. Output that may still become a mark is held back until it is decided.
    pub(super) fn feed(&mut self, bytes: &[u8], mut sink: impl FnMut(Piece<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = match self.begun.is_empty() {
                true => self.skip_to_escape(rest, &mut sink),
                false => self.read_mark(rest, &mut sink),
            };
        }
    }

    /// Forgets the start of what may have become a mark: what comes next is of another command.
    pub(super) fn reset(&mut self) {
        self.begun.clear();
    }

    fn skip_to_escape<'a>(&mut self, rest: &'a [u8], sink: &mut impl FnMut(Piece<'_>)) -> &'a [u8] {
        let escape = memchr::memchr(self.opening[0], rest);
        let (output, rest) = rest.split_at(escape.unwrap_or(rest.len()));
        if !output.is_empty() {
            sink(Piece::Output(output));
        }
        let (escape, rest) = rest.split_at(rest.len().min(1));
        self.begun.extend_from_slice(escape);
        rest
    }

    fn read_mark<'a>(&mut self, rest: &'a [u8], sink: &mut impl FnMut(Piece<'_>)) -> &'a [u8] {
        let next = rest[0];
        let body = self.begun.get(self.opening.len()..);
        match (body, self.opening.get(self.begun.len())) {
            (Some(body), None) if next == BELL => sink(Piece::Mark(body)),
            (Some(body), None) if body.len() < MAX_BODY_BYTES && next.is_ascii_alphanumeric() => {
                self.begun.push(next);
                return &rest[1..];
            }
            (_, Some(&expected)) if next == expected => {
                self.begun.push(next);
                return &rest[1..];
            }
            // The byte at hand may begin another.
            _ => {
                sink(Piece::Output(&self.begun));
                self.begun.clear();
                return rest;
            }
        }
        self.begun.clear();
        &rest[1..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Adjacent output joined, so that runs over differently cut bytes compare equal: what stands before each mark, and its
    /// body.
    fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut reader = MarkReader::new("n0nce");
        let mut pieces = vec![(Vec::new(), None)];
        for chunk in chunks {
            reader.feed(chunk, |piece| match piece {
                Piece::Output(bytes) => pieces.last_mut().unwrap().0.extend_from_slice(bytes),
                Piece::Mark(body) => {
                    pieces.last_mut().unwrap().1 = Some(body.to_vec());
                    pieces.push((Vec::new(), None));
                }
            });
        }
        pieces
    }

    fn piece(output: &str, body: Option<&str>) -> (Vec<u8>, Option<Vec<u8>>) {
        (output.into(), body.map(Into::into))
    }

    #[test]
    fn output_stands_between_marks() {
        let text = format!("hi\n{}[1]+ Done\n{}", mark("n0nce", "12ab"), mark("n0nce", ""));
        let expected = [piece("hi\n", Some("12ab")), piece("[1]+ Done\n", Some("")), piece("", None)];
        assert_eq!(read([text.as_bytes()]), expected);
    }

    #[test]
    fn what_only_looks_like_a_mark_is_output() {
        let long = mark("n0nce", &"x".repeat(MAX_BODY_BYTES + 1));
        for text in
            ["\x1b]other;\x07", "\x1b]n0nce\x07", "\x1b]n0nce;a;b\x07", "\x1b\x1b]n0nc\x1b]8;;\x07", &long]
        {
            assert_eq!(read([text.as_bytes(), b"."]), [piece(&format!("{text}."), None)], "{text:?}");
        }
    }

    #[test]
    fn a_mark_directly_after_half_a_mark_counts() {
        let text = b"\x1b]n0n\x1b]n0nce;\x1b]n0nce;1\x07".as_slice();
        assert_eq!(read([text]), [piece("\x1b]n0n\x1b]n0nce;", Some("1")), piece("", None)]);
    }

    fn hostile() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            Just(b"\x1b]n0nce;\x07".to_vec()),
            Just(b"\x1b]n0nce;12ab\x07".to_vec()),
            Just(b"\x1b]n0".to_vec()),
            Just(vec![BELL]),
            proptest::collection::vec(any::<u8>(), 0..20),
        ];
        proptest::collection::vec(part, 0..20).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn cutting_changes_nothing(bytes in hostile(), size in 1usize..9) {
            prop_assert_eq!(read(bytes.chunks(size)), read([bytes.as_slice()]));
        }
    }
}
