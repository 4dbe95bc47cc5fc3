//! Lines from the terminal, which the user can edit: see [`LineEditor`]. On a terminal without an
//! editor:
//!
//! The terminal is polled, and read only when it has input, so that a cancelled read cannot consume
//! input that is typed later. An alternative to polling would need unsafe code, or a thread that
//! continues to read.

use std::io::{self, IsTerminal as _, Stdin, Write as _};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};

use crate::line_editor::LineEditor;
use crate::redacted_stderr::{RedactedStderr, without_status};

/// Interval of polling the terminal. Users do not notice the delay.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum length of a line, in bytes. A longer one is split.
const MAX_LINE_LENGTH: usize = 64 << 10;

/// Size of one read, in bytes. A terminal's line buffer is not larger.
const READ_SIZE: usize = 4096;

/// Standard input that is a terminal.
#[derive(Default)]
pub(crate) struct TerminalInput {
    typed: Vec<u8>,
    /// `None` before the first question, and while a line is read.
    editor: Option<LineEditor>,
}

/// Whether the cursor keys bring a line back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineHistory {
    Remember,
    Skip,
}

impl TerminalInput {
    /// Shows a prompt, and reads a line that the user can edit if the terminal allows it. `None` at
    /// the end of the input. Input that was typed before is no answer.
    pub(crate) async fn ask(
        &mut self,
        prompt: &str,
        history: LineHistory,
    ) -> io::Result<Option<String>> {
        self.discard();
        let Some(editor) = self.editor.take().or_else(LineEditor::open) else {
            RedactedStderr.write_all(prompt.as_bytes())?;
            return self.line().await;
        };
        let (editor, line) = editor
            .read_on_thread(prompt.to_owned(), history == LineHistory::Remember)
            .await;
        self.editor = editor;
        line
    }

    /// Reads the next line, without its newline. `None` at the end of the input. Cancel-safe.
    async fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            let end = self
                .typed
                .iter()
                .position(|byte| *byte == b'\n')
                .map(|end| end + 1);
            let is_too_long = self.typed.len() > MAX_LINE_LENGTH;
            if let Some(end) = end.or(is_too_long.then_some(MAX_LINE_LENGTH)) {
                let line: Vec<u8> = self.typed.drain(..end).collect();
                return Ok(Some(
                    String::from_utf8_lossy(&line)
                        .trim_end_matches('\n')
                        .to_owned(),
                ));
            }
            let mut piece = [0; READ_SIZE];
            match try_read(&io::stdin(), &mut piece) {
                Ok(0) => return Ok(None),
                Ok(count) => self
                    .typed
                    .extend_from_slice(piece.get(..count).unwrap_or_default()),
                Err(Errno::WOULDBLOCK) => tokio::time::sleep(POLL_INTERVAL).await,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Discards input that was typed so far.
    fn discard(&mut self) {
        self.typed.clear();
        discard_typed_input();
    }
}

/// Reads without blocking. The terminal itself stays in blocking mode, because other programs share
/// it.
fn try_read(stdin: &Stdin, piece: &mut [u8]) -> Result<usize, Errno> {
    let mut fds = [PollFd::new(stdin, PollFlags::IN)];
    match poll(
        &mut fds,
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    )? {
        0 => Err(Errno::WOULDBLOCK),
        _ => rustix::io::read(stdin, piece),
    }
}

/// Whether a user at a terminal can be asked.
pub(crate) fn has_user() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a question and returns the trimmed answer. Input that was typed before the question is not
/// an answer to it.
pub(crate) fn ask(question: &str) -> io::Result<String> {
    without_status(|| {
        discard_typed_input();
        RedactedStderr.write_all(question.as_bytes())?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        Ok(answer.trim().to_owned())
    })
}

/// Asks whether to do something. Everything but a yes is a no.
pub(crate) fn confirm(question: &str) -> io::Result<bool> {
    let answer = ask(&format!("{question} [y/N] "))?;
    Ok(matches!(answer.to_lowercase().as_str(), "y" | "yes"))
}

/// Discards pending input, if standard input is this program's terminal.
pub(crate) fn discard_typed_input() {
    let stdin = io::stdin();
    // A background process would be stopped by SIGTTOU, and the input belongs to another program.
    if tcgetpgrp(&stdin).is_ok_and(|foreground| foreground == getpgrp()) {
        let _ = tcflush(&stdin, QueueSelector::IFlush);
    }
}

/// Discards on drop the input that was typed while this program ran, which the shell would execute.
pub(crate) struct PendingInputGuard;

impl Drop for PendingInputGuard {
    fn drop(&mut self) {
        discard_typed_input();
    }
}
