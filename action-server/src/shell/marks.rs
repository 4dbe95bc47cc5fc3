//! Finds the session's marks in the terminal's output: at its prompts, and where the output of a
//! command ends.
//!
//! Pure and incremental: the pieces are the same for any chunk size. Anything but a complete mark
//! is output. A mark is not trusted: it only triggers a query to the shell, which responds on its
//! [channel](super::channel), and separates the output of a command from what is shown after it.
//!
//! A mark is `ESC ] NAME ; BODY BEL`, an operating system command that no terminal implements, so
//! that it is not visible.

/// The maximum length of a body, which is a nonce.
const MAX_BODY_BYTES: usize = 16;

const BELL: u8 = 0x07;

/// A part of the terminal's output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MarkPiece<'a> {
    /// Output.
    Output(&'a [u8]),
    /// A mark with this body: empty at a prompt, the command's turn at its end.
    Mark(&'a [u8]),
}

/// Returns a mark of the session with this name.
pub(super) fn mark(name: &str, body: &str) -> String {
    format!("\x1b]{name};{body}\x07")
}

/// Parses the output of one terminal.
#[derive(Debug)]
pub(super) struct MarkReader {
    /// `ESC ] NAME ;`. ESC occurs in it only once, so a failed match can only restart at the
    /// current byte.
    opening: Vec<u8>,
    /// A possible start of a mark, or empty.
    partial: Vec<u8>,
}

impl MarkReader {
    /// Creates a parser for the marks of `name`, which contains no control characters.
    pub(super) fn new(name: &str) -> Self {
        Self {
            opening: format!("\x1b]{name};").into_bytes(),
            partial: Vec::new(),
        }
    }

    /// Processes output. Output that may be the start of a mark is held back until more arrives.
    pub(super) fn feed(&mut self, bytes: &[u8], mut sink: impl FnMut(MarkPiece<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = match self.partial.is_empty() {
                true => self.skip_to_escape(rest, &mut sink),
                false => self.read_mark(rest, &mut sink),
            };
        }
    }

    /// Drops an incomplete mark, because the next output belongs to another command.
    pub(super) fn reset(&mut self) {
        self.partial.clear();
    }

    fn skip_to_escape<'a>(
        &mut self,
        rest: &'a [u8],
        sink: &mut impl FnMut(MarkPiece<'_>),
    ) -> &'a [u8] {
        let escape = memchr::memchr(self.opening[0], rest);
        let (output, rest) = rest.split_at(escape.unwrap_or(rest.len()));
        if !output.is_empty() {
            sink(MarkPiece::Output(output));
        }
        let (escape, rest) = rest.split_at(rest.len().min(1));
        self.partial.extend_from_slice(escape);
        rest
    }

    fn read_mark<'a>(&mut self, rest: &'a [u8], sink: &mut impl FnMut(MarkPiece<'_>)) -> &'a [u8] {
        let next = rest[0];
        let body = self.partial.get(self.opening.len()..);
        match (body, self.opening.get(self.partial.len())) {
            (Some(body), None) if next == BELL => sink(MarkPiece::Mark(body)),
            (Some(body), None) if body.len() < MAX_BODY_BYTES && next.is_ascii_alphanumeric() => {
                self.partial.push(next);
                return &rest[1..];
            }
            (_, Some(&expected)) if next == expected => {
                self.partial.push(next);
                return &rest[1..];
            }
            // The current byte may start another mark.
            _ => {
                sink(MarkPiece::Output(&self.partial));
                self.partial.clear();
                return rest;
            }
        }
        self.partial.clear();
        &rest[1..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Joins adjacent output, so that the results for different chunk sizes are equal: the output
    /// before each mark, and the body of the mark.
    fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut reader = MarkReader::new("n0nce");
        let mut pieces = vec![(Vec::new(), None)];
        for chunk in chunks {
            reader.feed(chunk, |piece| match piece {
                MarkPiece::Output(bytes) => pieces.last_mut().unwrap().0.extend_from_slice(bytes),
                MarkPiece::Mark(body) => {
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
    fn output_is_separated_by_marks() {
        let text = format!(
            "hi\n{}[1]+ Done\n{}",
            mark("n0nce", "12ab"),
            mark("n0nce", "")
        );
        let expected = [
            piece("hi\n", Some("12ab")),
            piece("[1]+ Done\n", Some("")),
            piece("", None),
        ];
        assert_eq!(read([text.as_bytes()]), expected);
    }

    #[test]
    fn incomplete_mark_is_output() {
        let long = mark("n0nce", &"x".repeat(MAX_BODY_BYTES + 1));
        for text in [
            "\x1b]other;\x07",
            "\x1b]n0nce\x07",
            "\x1b]n0nce;a;b\x07",
            "\x1b\x1b]n0nc\x1b]8;;\x07",
            &long,
        ] {
            assert_eq!(
                read([text.as_bytes(), b"."]),
                [piece(&format!("{text}."), None)],
                "{text:?}"
            );
        }
    }

    #[test]
    fn mark_is_found_after_an_incomplete_one() {
        let text = b"\x1b]n0n\x1b]n0nce;\x1b]n0nce;1\x07".as_slice();
        assert_eq!(
            read([text]),
            [piece("\x1b]n0n\x1b]n0nce;", Some("1")), piece("", None)]
        );
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
        fn pieces_are_equal_for_any_chunk_size(bytes in hostile(), size in 1usize..9) {
            prop_assert_eq!(read(bytes.chunks(size)), read([bytes.as_slice()]));
        }
    }
}
