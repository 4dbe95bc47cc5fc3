//! What the command line writes to standard output and standard error; beside it only the progress line and logs.
//!
//! What comes from a sandbox or a model is hostile to a terminal: [`for_terminal`] takes out everything that could
//! move the cursor, set the title or pose as something else. A reader that went away is no failure of ours.

use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use protocol::{ConversationId, Event};
use serde::Serialize;

use crate::hiding::HidingStderr;

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

/// One line of JSON, or of a list, to standard output.
pub(super) fn line(text: &str) -> io::Result<()> {
    bytes(format!("{text}\n").as_bytes())
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
    let _ = note_lost_reader(HidingStderr.write_all(text.as_bytes()));
}

/// One line on what went wrong. It may quote a provider or a sandbox.
pub(crate) fn problem(text: &str) {
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

/// Text without what a terminal would act on: only printable characters, tabs and line ends stay. A carriage return
/// before a line end is dropped, another one ends the line, so that nothing is overwritten unseen.
pub(super) fn for_terminal(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => skip_escape(&mut characters),
            '\r' if characters.peek() == Some(&'\n') => {}
            '\r' => clean.push('\n'),
            '\n' | '\t' => clean.push(character),
            character if character.is_control() || is_bidirectional(character) => {}
            character => clean.push(character),
        }
    }
    clean
}

/// Text with everything written out that a terminal would act on or not show, as `\x1b` or `\u{202e}`: what is approved is
/// what is read. Line ends and tabs stay.
pub(super) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => shown.push(character),
            '\r' => shown.push_str("\\r"),
            character if character.is_control() => {
                shown.push_str(&format!("\\x{:02x}", u32::from(character)));
            }
            character if is_bidirectional(character) || is_invisible(character) => {
                shown.extend(character.escape_unicode());
            }
            character => shown.push(character),
        }
    }
    shown
}

/// The same in one line.
pub(super) fn visible_line(text: &str) -> String {
    visible(text).replace('\n', "\\n")
}

/// Controls of bidirectional text: they make it read as other than it is.
fn is_bidirectional(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// Characters without a shape: soft hyphens, joiners, line separators, fillers, variation selectors, tags.
fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            | '\u{34f}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200d}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{2060}'..='\u{2065}'
            | '\u{206a}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Passes over an escape sequence: CSI to its final byte, a string sequence (OSC and the like) to its terminator. At
/// most to the line's end: what never ends must not hide the rest of the text.
fn skip_escape(characters: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match characters.next_if(|character| *character != '\n') {
        Some('[') => {
            while let Some(character) = characters.next_if(|character| *character != '\n') {
                if ('\u{40}'..='\u{7e}').contains(&character) {
                    break;
                }
            }
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            while let Some(character) = characters.next_if(|character| *character != '\n') {
                if character == '\u{7}' {
                    break;
                }
                if character == '\u{1b}' {
                    characters.next_if_eq(&'\\');
                    break;
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{for_terminal, visible, visible_line};

    #[test]
    fn nothing_that_a_terminal_acts_on_or_hides_is_invisible() {
        for (hostile, shown) in [
            ("plain\ttext\näöü 漢字 🦀", "plain\ttext\näöü 漢字 🦀"),
            ("\u{1b}]0;title\u{7}", "\\x1b]0;title\\x07"),
            ("a\u{9b}2Jb\u{8}\u{7f}\0", "a\\x9b2Jb\\x08\\x7f\\x00"),
            ("evil\u{202e}txt\u{2069}", "evil\\u{202e}txt\\u{2069}"),
            ("r\u{200b}m\u{e0041}\r", "r\\u{200b}m\\u{e0041}\\r"),
        ] {
            assert_eq!(visible(hostile), shown);
        }
        assert_eq!(visible_line("a\nb"), "a\\nb");
    }

    #[test]
    fn nothing_that_a_terminal_acts_on_passes() {
        for (hostile, shown) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]52;c;aGk=\u{1b}\\after", "after"),
            ("50%\r100%\r\n", "50%\n100%\n"),
            ("a\u{8}b\u{7}\u{9b}2Jc", "ab2Jc"),
            ("evil\u{202e}t\u{200f}xt", "eviltxt"),
            ("cut \u{1b}[", "cut "),
            ("\u{1b}]never ended\nrm -rf x", "\nrm -rf x"),
        ] {
            assert_eq!(for_terminal(hostile), shown);
        }
    }
}
