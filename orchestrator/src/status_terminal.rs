//! The terminal of status lines. Such a line is as wide as the terminal. After it, the `^C` that
//! the terminal echoes would be on the next line, and the status above it would stay. Its lines are
//! therefore a little shorter.

use std::io;

use console::Term;
use indicatif::{ProgressDrawTarget, TermLike};

/// Width of an echoed control character, and of the cursor after it.
const ECHO_WIDTH: u16 = 3;

/// Maximum number of draws per second.
const MAX_DRAW_RATE: u8 = 20;

#[derive(Debug)]
struct StatusTerminal(Term);

/// Returns standard error for status lines. Hidden if that is not a terminal.
pub(crate) fn target() -> ProgressDrawTarget {
    let term = Term::buffered_stderr();
    if term.features().is_attended() {
        ProgressDrawTarget::term_like_with_hz(Box::new(StatusTerminal(term)), MAX_DRAW_RATE)
    } else {
        ProgressDrawTarget::hidden()
    }
}

impl TermLike for StatusTerminal {
    fn width(&self) -> u16 {
        let (_, width) = self.0.size();
        width.saturating_sub(ECHO_WIDTH)
    }

    fn height(&self) -> u16 {
        let (height, _) = self.0.size();
        height
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_up(n)
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_down(n)
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_right(n)
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_left(n)
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        self.0.write_line(line)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.0.write_str(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.0.clear_line()
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}
