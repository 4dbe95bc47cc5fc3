//! The key of the server. It is read from standard input, kept in memory that other processes
//! cannot read, and never printed.

use std::fmt;
use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use axum::http::HeaderMap;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use protocol::sandbox_api::KEY_HEADER;

/// Longer than any generated key. It also bounds the read from a stream without line ends.
const MAX_KEY_BYTES: u64 = 4096;

/// How long the key may take to arrive.
const KEY_TIMEOUT: Duration = Duration::from_secs(30);

/// The key that requests must contain.
pub(crate) struct ServerKey(Vec<u8>);

impl ServerKey {
    /// Reads the key from the first line of standard input. Fails if it does not arrive in time: an
    /// engine that restarts a container passes no key, and clients would wait for the server.
    pub(crate) fn from_stdin() -> anyhow::Result<Self> {
        let line = read_line(io::stdin().lock(), Instant::now() + KEY_TIMEOUT);
        line.and_then(|line| Self::from_line(&line))
            .context("cannot read the key from standard input")
    }

    /// Writes the line that [`Self::from_stdin`] reads in another process.
    pub(crate) fn write_to(&self, output: &mut impl Write) -> io::Result<()> {
        output.write_all(&self.0)?;
        output.write_all(b"\n")
    }

    /// Parses a line with or without its end.
    pub(crate) fn from_line(line: &[u8]) -> anyhow::Result<Self> {
        let key = line.trim_ascii_end();
        if key.is_empty() {
            bail!("the line is empty");
        }
        if line.len() as u64 >= MAX_KEY_BYTES || !key.iter().all(u8::is_ascii_graphic) {
            bail!("the key is not a line of at most {MAX_KEY_BYTES} visible ASCII characters");
        }
        Ok(Self(key.to_vec()))
    }

    /// Returns whether the headers of a request contain the key.
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        headers
            .get(KEY_HEADER)
            .is_some_and(|given| self.is(given.as_bytes()))
    }

    /// Compares in constant time.
    fn is(&self, given: &[u8]) -> bool {
        let differences = self
            .0
            .iter()
            .zip(given)
            .fold(0, |all, (key, given)| black_box(all | (key ^ given)));
        self.0.len() == given.len() && differences == 0
    }
}

impl fmt::Debug for ServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerKey(…)")
    }
}

/// Reads a line, its start if it is longer than any key, or what precedes the end of the input.
fn read_line(mut input: impl BufRead + AsFd, deadline: Instant) -> anyhow::Result<Vec<u8>> {
    let mut line = Vec::new();
    while (line.len() as u64) < MAX_KEY_BYTES {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(
            &mut [PollFd::new(input.as_fd(), PollFlags::POLLIN)],
            timeout,
        ) {
            Ok(0) => bail!("it has not arrived within {} s", KEY_TIMEOUT.as_secs()),
            Err(Errno::EINTR) => continue,
            waited => drop(waited?),
        }
        // Taken completely, so that the next wait is for new input.
        let piece = input.fill_buf()?;
        let end = piece.iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(piece.get(..end.unwrap_or(piece.len())).unwrap_or_default());
        let length = piece.len();
        input.consume(length);
        if end.is_some() || length == 0 {
            break;
        }
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_equals_only_itself() {
        let key = ServerKey::from_line(b"secret\r\n").unwrap();
        assert!(key.is(b"secret"));
        for wrong in [&b""[..], b"secre", b"secret1", b"Secret", b"secreT"] {
            assert!(!key.is(wrong));
        }
    }

    #[test]
    fn key_is_rejected_when_no_header_can_carry_it() {
        for line in [
            &b""[..],
            b"\n",
            b"a b\n",
            b"\xff\n",
            &[b'x'; MAX_KEY_BYTES as usize],
        ] {
            assert!(ServerKey::from_line(line).is_err());
        }
    }

    #[test]
    fn key_is_not_printed_by_debug() {
        assert_eq!(
            format!("{:?}", ServerKey::from_line(b"secret").unwrap()),
            "ServerKey(…)"
        );
    }

    /// A pipe that is read like standard input.
    struct Input(io::BufReader<io::PipeReader>);

    impl io::Read for Input {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.0.read(bytes)
        }
    }

    impl BufRead for Input {
        fn fill_buf(&mut self) -> io::Result<&[u8]> {
            self.0.fill_buf()
        }

        fn consume(&mut self, length: usize) {
            self.0.consume(length);
        }
    }

    impl AsFd for Input {
        fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
            self.0.get_ref().as_fd()
        }
    }

    #[test]
    fn key_is_read_until_the_end_of_its_line_or_a_deadline() {
        for (written, is_closed, expected) in [
            ("key\nmore", false, Some("key")),
            ("key", true, Some("key")),
            ("ke", false, None),
            ("", false, None),
        ] {
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(written.as_bytes()).unwrap();
            let _open = (!is_closed).then_some(writer);
            let deadline = Instant::now() + Duration::from_millis(50);
            let line = read_line(Input(io::BufReader::new(reader)), deadline).ok();
            let line = line.map(|line| String::from_utf8(line).unwrap());
            assert_eq!(line.as_deref(), expected, "{written}");
        }
    }
}
