//! Finds the session's marks, which its prompts contain, in the terminal's output.
//!
//! Pure and incremental: the pieces are the same for any chunk size. Anything but a complete mark
//! is output. A mark is not trusted: it only triggers a query to the shell, which responds on its
//! [channel](super::channel).
//!
//! A mark is `ESC ] NAME ; BEL`, an operating system command that no terminal implements, so that
//! it is not visible.

/// A part of the terminal's output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MarkPiece<'a> {
    /// Output.
    Output(&'a [u8]),
    /// A mark.
    Mark,
}

/// Returns a mark of the session with this name. `body` is nothing once the shell has expanded it.
pub(super) fn mark(name: &str, body: &str) -> String {
    format!("\x1b]{name};{body}\x07")
}

/// Parses the output of one terminal.
#[derive(Debug)]
pub(super) struct MarkReader {
    /// ESC occurs in it only once, so a failed match can only restart at the current byte.
    mark: Vec<u8>,
    /// Length of a possible start of a mark.
    matched: usize,
}

impl MarkReader {
    /// Creates a parser for the marks of `name`, which contains no control characters.
    pub(super) fn new(name: &str) -> Self {
        Self {
            mark: mark(name, "").into_bytes(),
            matched: 0,
        }
    }

    /// Processes output. Output that may be the start of a mark is held back until more arrives.
    pub(super) fn feed(&mut self, bytes: &[u8], mut sink: impl FnMut(MarkPiece<'_>)) {
        let mut rest = bytes;
        while let Some(&next) = rest.first() {
            if next == self.mark[self.matched] {
                self.matched += 1;
                rest = &rest[1..];
                if self.matched == self.mark.len() {
                    self.matched = 0;
                    sink(MarkPiece::Mark);
                }
            } else if self.matched > 0 {
                sink(MarkPiece::Output(&self.mark[..self.matched]));
                self.matched = 0;
            } else {
                let escape = memchr::memchr(self.mark[0], rest).unwrap_or(rest.len());
                sink(MarkPiece::Output(&rest[..escape]));
                rest = &rest[escape..];
            }
        }
    }

    /// Drops an incomplete mark, because the next output belongs to another command.
    pub(super) fn reset(&mut self) {
        self.matched = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Joins adjacent output, so that the results for different chunk sizes are equal: the output
    /// between the marks.
    fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
        let mut reader = MarkReader::new("n0nce");
        let mut pieces = vec![Vec::new()];
        for chunk in chunks {
            reader.feed(chunk, |piece| match piece {
                MarkPiece::Output(bytes) => pieces.last_mut().unwrap().extend_from_slice(bytes),
                MarkPiece::Mark => pieces.push(Vec::new()),
            });
        }
        pieces
    }

    #[test]
    fn output_is_separated_by_marks() {
        let text = format!("hi\n{0}[1]+ Done\n{0}", mark("n0nce", ""));
        assert_eq!(read([text.as_bytes()]), [&b"hi\n"[..], b"[1]+ Done\n", b""]);
    }

    #[test]
    fn incomplete_mark_is_output() {
        for text in [
            "\x1b]other;\x07",
            "\x1b]n0nce\x07",
            "\x1b]n0nce;a\x07",
            "\x1b\x1b]n0nc\x1b]8;;\x07",
        ] {
            assert_eq!(
                read([text.as_bytes(), b"."]),
                [format!("{text}.").as_bytes()],
                "{text:?}"
            );
        }
    }

    #[test]
    fn mark_is_found_after_an_incomplete_one() {
        let text = b"\x1b]n0n\x1b]n0nce;\x1b]n0nce;\x07".as_slice();
        assert_eq!(read([text]), [&b"\x1b]n0n\x1b]n0nce;"[..], b""]);
    }

    fn hostile() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            Just(b"\x1b]n0nce;\x07".to_vec()),
            Just(b"\x1b]n0".to_vec()),
            Just(vec![0x07]),
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
