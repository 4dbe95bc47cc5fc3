//! Finds the session's marks in what the terminal says: where a command's own output begins, and where it ends.
//!
//! Pure and incremental: bytes in, pieces out, the same pieces however the bytes are cut. What is not a whole mark with
//! this session's nonce is output, every byte of it; nothing that a command prints can make the reader hold more than
//! [`MAX_BODY_BYTES`] or wait for ever with output in hand.
//!
//! A mark is `ESC ] NONCE ; BODY BEL`, an operating system command that no terminal knows: a screen that shows it by
//! mistake shows nothing.

/// A path has at most 4,095 bytes on Linux; with the fields before it a mark stays well below this.
const MAX_BODY_BYTES: usize = 8 * 1024;

const BELL: u8 = 0x07;

/// What the shell announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mark {
    /// The command with this number begins.
    Start { number: u64 },
    /// The shell is at its prompt again. Which command that ends is said by the start before it. `guarded`: the next has
    /// to be ([`super::prompt`]). `early`: it is said before the prompt, which may say it again.
    End { status: i32, guarded: bool, early: bool, working_dir: Vec<u8> },
}

/// A stretch of the terminal's output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Bytes for people.
    Output(&'a [u8]),
    /// A mark of this session.
    Mark(Mark),
}

/// The reader of one terminal.
#[derive(Debug)]
pub(super) struct MarkReader {
    /// `ESC ] NONCE ;`. ESC occurs in it only once, so a match that fails can only begin again at the failing byte.
    opening: Vec<u8>,
    /// How much of `opening` has been matched; all of it: inside a body.
    matched: usize,
    body: Vec<u8>,
}

impl MarkReader {
    pub(super) fn new(nonce: &str) -> Self {
        Self { opening: format!("\x1b]{nonce};").into_bytes(), matched: 0, body: Vec::new() }
    }

    /// Reads on. Output that may still become a mark is held back until it is decided.
    pub(super) fn feed(&mut self, bytes: &[u8], mut sink: impl FnMut(Piece<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = match self.matched {
                0 => Self::skip_to_escape(rest, &mut self.matched, &mut sink),
                n if n < self.opening.len() => self.match_opening(rest, &mut sink),
                _ => self.read_body(rest, &mut sink),
            };
        }
    }

    fn skip_to_escape<'a>(rest: &'a [u8], matched: &mut usize, sink: &mut impl FnMut(Piece<'_>)) -> &'a [u8] {
        let escape = memchr::memchr(0x1b, rest);
        let (output, rest) = rest.split_at(escape.unwrap_or(rest.len()));
        if !output.is_empty() {
            sink(Piece::Output(output));
        }
        *matched = escape.map_or(0, |_| 1);
        rest.get(1..).unwrap_or_default()
    }

    fn match_opening<'a>(&mut self, rest: &'a [u8], sink: &mut impl FnMut(Piece<'_>)) -> &'a [u8] {
        let expected = &self.opening[self.matched..];
        let same = expected.iter().zip(rest).take_while(|(a, b)| a == b).count();
        self.matched += same;
        if same < expected.len() && same < rest.len() {
            sink(Piece::Output(&self.opening[..self.matched]));
            self.matched = 0;
        }
        &rest[same..]
    }

    fn read_body<'a>(&mut self, rest: &'a [u8], sink: &mut impl FnMut(Piece<'_>)) -> &'a [u8] {
        let room = MAX_BODY_BYTES - self.body.len();
        let window = &rest[..rest.len().min(room)];
        if let Some(bell) = window.iter().position(|&byte| byte == BELL) {
            self.body.extend_from_slice(&window[..bell]);
            match parse(&self.body) {
                Some(mark) => sink(Piece::Mark(mark)),
                None => self.give_up(&[BELL], sink),
            }
            self.reset();
            return &rest[bell + 1..];
        }
        self.body.extend_from_slice(window);
        if self.body.len() == MAX_BODY_BYTES {
            self.give_up(&[], sink);
            self.reset();
        }
        &rest[window.len()..]
    }

    /// It was no mark after all.
    fn give_up(&self, end: &[u8], sink: &mut impl FnMut(Piece<'_>)) {
        for part in [&self.opening, &self.body, end] {
            if !part.is_empty() {
                sink(Piece::Output(part));
            }
        }
    }

    fn reset(&mut self) {
        self.matched = 0;
        self.body.clear();
    }
}

/// `S;NUMBER` or `E;STATUS;OPTIONS;PATH`. The options are the shell's (`$-`), `~` if it cannot say them. The path is
/// last because it may hold anything but a NUL.
fn parse(body: &[u8]) -> Option<Mark> {
    let (kind, rest) = split_field(body);
    match kind {
        b"S" => Some(Mark::Start { number: number(rest)? }),
        b"E" => {
            let (status, rest) = split_field(rest);
            let (options, path) = split_field(rest);
            let guarded = options.iter().any(|option| b"xve~".contains(option));
            let early = options.contains(&b'~');
            Some(Mark::End { status: number(status)?, guarded, early, working_dir: path.to_vec() })
        }
        _ => None,
    }
}

fn split_field(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|&byte| byte == b';').unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

fn number<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Adjacent output joined, so that runs over differently cut bytes compare equal.
    fn read<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<(Vec<u8>, Option<Mark>)> {
        let mut reader = MarkReader::new("n0nce");
        let mut pieces = vec![(Vec::new(), None)];
        for chunk in chunks {
            reader.feed(chunk, |piece| match piece {
                Piece::Output(bytes) => pieces.last_mut().unwrap().0.extend_from_slice(bytes),
                Piece::Mark(mark) => {
                    pieces.last_mut().unwrap().1 = Some(mark);
                    pieces.push((Vec::new(), None));
                }
            });
        }
        pieces
    }

    #[test]
    fn output_stands_between_start_and_end() {
        let pieces = read([b"old\x1b]n0nce;S;7\x07hi\n\x1b]n0nce;E;130;himBH;/a;b\x07prompt".as_slice()]);
        let end = Mark::End { status: 130, guarded: false, early: false, working_dir: b"/a;b".to_vec() };
        assert_eq!(
            pieces,
            [
                (b"old".to_vec(), Some(Mark::Start { number: 7 })),
                (b"hi\n".to_vec(), Some(end)),
                (b"prompt".to_vec(), None)
            ]
        );
    }

    #[test]
    fn what_only_looks_like_a_mark_is_output() {
        for text in [
            "\x1b]other;E;0;/\x07",
            "\x1b]n0nce;E;$?;x;/\x07",
            "\x1b]n0nce;X;0;/\x07",
            "\x1b\x1b]n0nc\x1b]8;;\x07",
            "\x1b]n0nce;S;-1\x07",
        ] {
            assert_eq!(read([text.as_bytes()]), [(text.as_bytes().to_vec(), None)], "{text:?}");
        }
    }

    #[test]
    fn a_mark_directly_after_half_a_mark_counts() {
        let pieces = read([b"\x1b]n0n\x1b]n0nce;S;1\x07".as_slice()]);
        assert_eq!(pieces[0], (b"\x1b]n0n".to_vec(), Some(Mark::Start { number: 1 })));
    }

    #[test]
    fn an_end_that_is_said_before_the_prompt_is_told_from_the_prompt() {
        for (options, expected) in [("~", (true, true)), ("himBH", (false, false)), ("hxB", (true, false))] {
            let text = format!("\x1b]n0nce;E;0;{options};/\x07");
            let [(_, Some(Mark::End { guarded, early, .. })), _] = &read([text.as_bytes()])[..] else {
                panic!("{options}")
            };
            assert_eq!((*guarded, *early), expected, "{options}");
        }
    }

    #[test]
    fn an_endless_mark_is_given_back_as_output() {
        let mut text = b"\x1b]n0nce;E;0;x;".to_vec();
        text.extend(vec![b'x'; 3 * MAX_BODY_BYTES]);
        assert_eq!(read([text.as_slice()]), [(text.clone(), None)]);
    }

    fn hostile() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            Just(b"\x1b]n0nce;S;1\x07".to_vec()),
            Just(b"\x1b]n0nce;E;0;x;/tmp\x07".to_vec()),
            Just(b"\x1b]n0nce;".to_vec()),
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
