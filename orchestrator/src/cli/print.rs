//! What the command line writes to standard output and standard error; beside it only the progress line and logs.
//!
//! What comes from a sandbox or a model is hostile to a terminal: see [`for_terminal`]. A reader that went away is no
//! failure of ours.

use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use protocol::{ConversationId, Event};
use serde::Serialize;

use crate::redacted_stderr::RedactedStderr;
use crate::terminal_text::escape_controls;
pub(super) use crate::terminal_text::{for_terminal, visible, visible_line};

/// Whether a pipe was closed that we write to. A conversation that nobody follows any more is stopped.
static HAS_LOST_READER: AtomicBool = AtomicBool::new(false);

/// Whether standard output or standard error is a pipe whose reader is gone, as far as was noticed by writing to it.
pub(super) fn has_lost_reader() -> bool {
    HAS_LOST_READER.load(Ordering::Relaxed)
}

/// The same result, but a closed pipe is only noted.
fn note_lost_reader(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            HAS_LOST_READER.store(true, Ordering::Relaxed);
            Ok(())
        }
        result => result,
    }
}

/// An event in a line of JSON, with the conversation that it is of.
pub(super) fn event(conversation: &ConversationId, event: &Event) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Line<'a> {
        conversation_id: &'a ConversationId,
        #[serde(flatten)]
        event: &'a Event,
    }
    Ok(line(&serde_json::to_string(&Line { conversation_id: conversation, event })?)?)
}

/// JSON, or one line of a list, to standard output, harmless for a terminal. JSON stays the same value.
pub(super) fn line(line: &str) -> io::Result<()> {
    text(&format!("{line}\n"))
}

/// Text to standard output. What a terminal acts on was taken out before, but for our own colours.
pub(super) fn text(text: &str) -> io::Result<()> {
    bytes(escape_controls(text).as_bytes())
}

/// Bytes to standard output, as they are.
pub(super) fn bytes(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    note_lost_reader(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// What the agent said at the end, to standard output. On a terminal that shows standard error too it was shown already.
pub(super) fn answer(text: &str) -> io::Result<()> {
    if text.is_empty() || io::stdout().is_terminal() && io::stderr().is_terminal() {
        return Ok(());
    }
    command_output(format!("{}\n", text.trim_end_matches('\n')).as_bytes())
}

/// Text for people to standard error, without the secrets.
pub(super) fn note(text: &str) {
    // There is nowhere to report another error of standard error.
    let _ = note_lost_reader(RedactedStderr.write_all(text.as_bytes()));
}

/// One line on what went wrong. It may quote a provider or a sandbox.
pub(crate) fn error(text: &str) {
    note(&format!("glovebox: {}\n", for_terminal(text.trim_end())));
}

/// One line on what may be going wrong. It may quote a provider or a sandbox.
pub(super) fn warning(text: &str) {
    note(&format!("glovebox: warning: {}\n", for_terminal(text)));
}

/// A command's own output to standard output: as it is for a file or a pipe, harmless for a terminal.
pub(super) fn command_output(output: &[u8]) -> io::Result<()> {
    if io::stdout().is_terminal() {
        bytes(for_terminal(&String::from_utf8_lossy(output)).as_bytes())
    } else {
        bytes(output)
    }
}

/// A program's own output to standard output: as it is for a file or a pipe, harmless for a terminal. That nobody reads it
/// any more is an error here.
pub(super) fn program_stdout(output: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    let is_terminal = stdout.is_terminal();
    program_output(&mut stdout, is_terminal, output)
}

/// The same to standard error.
pub(super) fn program_stderr(output: &[u8]) -> io::Result<()> {
    let mut stderr = io::stderr().lock();
    let is_terminal = stderr.is_terminal();
    program_output(&mut stderr, is_terminal, output)
}

fn program_output(to: &mut impl Write, is_terminal: bool, output: &[u8]) -> io::Result<()> {
    if is_terminal {
        to.write_all(for_terminal(&String::from_utf8_lossy(output)).as_bytes())?;
    } else {
        to.write_all(output)?;
    }
    to.flush()
}
