//! Writes to standard output and standard error, except the progress line and the log.
//!
//! Text from a sandbox or a model is hostile to a terminal: see [`for_terminal`]. A closed pipe is
//! not an error.

use std::io::{self, IsTerminal, Write};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::utf8::take_whole_text;
use protocol::{ConversationId, Event};
use serde::Serialize;
use tokio::time::timeout;

use crate::redacted_stderr::RedactedStderr;
use crate::terminal_text::escape_controls;
pub(super) use crate::terminal_text::{for_terminal, visible, visible_line};

/// Whether standard output or standard error was a closed pipe. A conversation without a reader is
/// stopped.
static HAS_LOST_READER: AtomicBool = AtomicBool::new(false);

/// Whether a write to standard output or standard error found the pipe closed.
pub(super) fn has_lost_reader() -> bool {
    HAS_LOST_READER.load(Ordering::Relaxed)
}

/// Records a closed pipe, instead of failing.
fn note_lost_reader(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            HAS_LOST_READER.store(true, Ordering::Relaxed);
            Ok(())
        }
        result => result,
    }
}

/// Prints an event as a line of JSON, with the id of its conversation.
pub(super) fn event(conversation: &ConversationId, event: &Event) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Line<'a> {
        conversation_id: &'a ConversationId,
        #[serde(flatten)]
        event: &'a Event,
    }
    Ok(line(&serde_json::to_string(&Line {
        conversation_id: conversation,
        event,
    })?)?)
}

/// Prints a line to standard output, with control characters escaped. JSON keeps its value.
pub(super) fn line(line: &str) -> io::Result<()> {
    text(&format!("{line}\n"))
}

/// Prints text to standard output. The caller has sanitized it, so that it contains no control
/// sequences but colours.
pub(super) fn text(text: &str) -> io::Result<()> {
    bytes(escape_controls(text).as_bytes())
}

/// Prints bytes to standard output, unchanged.
pub(super) fn bytes(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    let written = note_lost_reader(stdout.write_all(bytes).and_then(|()| stdout.flush()));
    written.map_err(|error| {
        let text = format!("cannot write to standard output: {error}");
        io::Error::new(error.kind(), text)
    })
}

/// Prints the last message of the agent to standard output. Not on a terminal, where the transcript
/// has shown it.
pub(super) fn answer(text: &str) -> io::Result<()> {
    if text.is_empty() || io::stdout().is_terminal() && io::stderr().is_terminal() {
        return Ok(());
    }
    command_output(format!("{}\n", text.trim_end_matches('\n')).as_bytes())
}

/// Prints text to standard error, with secrets redacted.
pub(super) fn note(text: &str) {
    // There is nowhere to report another error of standard error.
    let _ = note_lost_reader(RedactedStderr.write_all(text.as_bytes()));
}

/// Time after which the user reads what is waited for.
pub(super) const NOTICE_DELAY: Duration = Duration::from_secs(2);

/// Runs `work`, and says what it waits for if it takes longer than two seconds.
pub(super) async fn with_notice<T>(what: &str, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    match timeout(NOTICE_DELAY, &mut work).await {
        Ok(done) => done,
        Err(_) => {
            note(&format!("[waiting for {what}]\n"));
            work.await
        }
    }
}

/// Prints an error in one line. It may quote a provider or a sandbox.
pub(crate) fn error(text: &str) {
    note(&format!("glovebox: {}\n", for_terminal(text.trim_end())));
}

/// Prints a warning in one line. It may quote a provider or a sandbox.
pub(super) fn warning(text: &str) {
    note(&format!("glovebox: warning: {}\n", for_terminal(text)));
}

/// Prints output of a command to standard output: sanitized on a terminal, unchanged to a file or a
/// pipe.
pub(super) fn command_output(output: &[u8]) -> io::Result<()> {
    note_lost_reader(program_stdout(output))
}

/// Like [`command_output`], but fails if the pipe is closed.
pub(super) fn program_stdout(output: &[u8]) -> io::Result<()> {
    let mut stdout = ProgramStream::stdout();
    stdout.write(output)?;
    stdout.finish()
}

/// A standard stream that a program's output is written to: sanitized on a terminal, else
/// unchanged.
pub(super) struct ProgramStream<S> {
    stream: S,
    is_terminal: bool,
    /// The start of a character whose rest has not been written yet.
    held: Vec<u8>,
}

impl ProgramStream<io::Stdout> {
    pub(super) fn stdout() -> Self {
        Self::new(io::stdout(), io::stdout().is_terminal())
    }
}

impl ProgramStream<io::Stderr> {
    pub(super) fn stderr() -> Self {
        Self::new(io::stderr(), io::stderr().is_terminal())
    }
}

impl<S: Write> ProgramStream<S> {
    fn new(stream: S, is_terminal: bool) -> Self {
        Self {
            stream,
            is_terminal,
            held: Vec::new(),
        }
    }

    /// Writes the next bytes. Fails if the pipe is closed.
    pub(super) fn write(&mut self, output: &[u8]) -> io::Result<()> {
        if self.is_terminal {
            self.held.extend_from_slice(output);
            let text = take_whole_text(&mut self.held);
            self.stream.write_all(for_terminal(&text).as_bytes())?;
        } else {
            self.stream.write_all(output)?;
        }
        self.stream.flush()
    }

    /// Writes what is held.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        self.stream.write_all(text.as_bytes())?;
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn character_that_is_divided_is_written_whole_to_a_terminal() {
        for (is_terminal, last) in [(true, "\u{fffd}".as_bytes()), (false, b"\xf0")] {
            let mut written = Vec::new();
            let mut stream = ProgramStream::new(&mut written, is_terminal);
            for byte in "é€😀".bytes().chain([0xf0]) {
                stream.write(&[byte]).unwrap();
            }
            stream.finish().unwrap();
            assert_eq!(written, ["é€😀".as_bytes(), last].concat());
        }
    }
}
