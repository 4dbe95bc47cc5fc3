//! What a person types at this program's terminal: line by line, and nothing that was typed before it was asked for.
//!
//! A line is read only once it is there, so that no read is left behind that would take what is typed next. For that the
//! terminal is looked at from time to time: waiting for it otherwise would take unsafe code, or a thread that reads on.

use std::io::{self, Stdin};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};

/// How often the terminal is looked at: nobody notices the delay.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum length of a line, in bytes. The rest of a longer one is a line of its own.
const MAX_LINE_LENGTH: usize = 64 << 10;

/// How much is read at a time: a terminal holds no more of a line.
const PIECE: usize = 4096;

/// Standard input that is a terminal.
#[derive(Default)]
pub(super) struct TerminalInput {
    typed: Vec<u8>,
}

impl TerminalInput {
    /// The next line without its end; `None` at the end of the input. Cancel-safe.
    pub(super) async fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            let end = self.typed.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
            let is_too_long = self.typed.len() > MAX_LINE_LENGTH;
            if let Some(end) = end.or(is_too_long.then_some(MAX_LINE_LENGTH)) {
                let line: Vec<u8> = self.typed.drain(..end).collect();
                return Ok(Some(String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned()));
            }
            let mut piece = [0; PIECE];
            match read_if_there(&io::stdin(), &mut piece) {
                Ok(0) => return Ok(None),
                Ok(count) => self.typed.extend_from_slice(piece.get(..count).unwrap_or_default()),
                Err(Errno::WOULDBLOCK) => tokio::time::sleep(POLL_INTERVAL).await,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Forgets what was typed so far.
    pub(super) fn discard(&mut self) {
        self.typed.clear();
        discard_typed_input();
    }
}

/// Reads without waiting. The terminal stays blocking: it is shared with other programs.
fn read_if_there(stdin: &Stdin, piece: &mut [u8]) -> Result<usize, Errno> {
    let mut fds = [PollFd::new(stdin, PollFlags::IN)];
    match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? {
        0 => Err(Errno::WOULDBLOCK),
        _ => rustix::io::read(stdin, piece),
    }
}

/// Discards what was typed and not read yet, if standard input is this program's terminal.
pub(super) fn discard_typed_input() {
    let stdin = io::stdin();
    // In the background it would be stopped by SIGTTOU, and the input is another program's.
    if tcgetpgrp(&stdin).is_ok_and(|foreground| foreground == getpgrp()) {
        let _ = tcflush(&stdin, QueueSelector::IFlush);
    }
}

/// Keeps from the shell what is typed while this program works: it would be executed there.
pub(super) struct InputKeptFromShell;

impl Drop for InputKeptFromShell {
    fn drop(&mut self) {
        discard_typed_input();
    }
}
