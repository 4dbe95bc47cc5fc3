//! The key of the server. It is read from standard input, kept in memory that other processes
//! cannot read, and never printed.

use std::fmt;
use std::hint::black_box;
use std::io::{self, BufRead as _, Read as _, Write};
use std::os::fd::AsFd as _;

use anyhow::{Context as _, bail};
use axum::http::HeaderMap;
use nix::poll::{PollFd, PollFlags, poll};
use protocol::sandbox_api::KEY_HEADER;

/// Longer than any generated key. It also bounds the read from a stream without line ends.
const MAX_KEY_BYTES: u64 = 4096;

/// How long the key may take to arrive, in milliseconds.
const KEY_TIMEOUT_MS: u16 = 30_000;

/// The key that requests must contain.
pub(crate) struct ServerKey(Vec<u8>);

impl ServerKey {
    /// Reads the key from the first line of standard input. Fails if nothing arrives: an engine that
    /// restarts a container passes no key, and its clients would wait for a server.
    pub(crate) fn from_stdin() -> anyhow::Result<Self> {
        let mut line = Vec::new();
        let stdin = io::stdin();
        let mut readable = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        if poll(&mut readable, KEY_TIMEOUT_MS).context("cannot wait for the key")? == 0 {
            let seconds = KEY_TIMEOUT_MS / 1000;
            bail!("no key has arrived on standard input within {seconds} s");
        }
        let mut input = stdin.lock().take(MAX_KEY_BYTES);
        input
            .read_until(b'\n', &mut line)
            .context("cannot read the key from standard input")?;
        Self::from_line(&line).context("cannot read the key from standard input")
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
}
