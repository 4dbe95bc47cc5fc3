//! What the command line writes to standard output and standard error; beside it only the progress line and logs.
//!
//! What comes from a sandbox or a model is hostile to a terminal: [`for_terminal`] takes out everything that could
//! move the cursor, set the title or pose as something else. A reader that went away is no failure of ours.

use std::io::{self, IsTerminal as _, Write};

use crate::hiding::HidingStderr;

/// One line of JSON, or of a list, to standard output.
pub(super) fn line(text: &str) -> io::Result<()> {
    bytes(format!("{text}\n").as_bytes())
}

/// Bytes to standard output, as they are.
pub(super) fn bytes(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Text for people to standard error, without the secrets.
pub(super) fn note(text: &str) {
    // There is nowhere to tell that standard error is gone.
    let _ = HidingStderr.write_all(text.as_bytes());
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
            // Bidirectional controls make text read as other than it is.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            character if character.is_control() => {}
            character => clean.push(character),
        }
    }
    clean
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
    use super::for_terminal;

    #[test]
    fn nothing_that_a_terminal_acts_on_passes() {
        for (hostile, shown) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]52;c;aGk=\u{1b}\\after", "after"),
            ("50%\r100%\r\n", "50%\n100%\n"),
            ("a\u{8}b\u{7}\u{9b}2Jc", "ab2Jc"),
            ("evil\u{202e}txt", "eviltxt"),
            ("cut \u{1b}[", "cut "),
            ("\u{1b}]never ended\nrm -rf x", "\nrm -rf x"),
        ] {
            assert_eq!(for_terminal(hostile), shown);
        }
    }
}
