//! Size and raw mode of this program's terminal.

use std::io::{self, IsTerminal as _, Write as _};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Resets what a program inside may have left on: the alternate screen, mouse reports, bracketed
/// paste, a hidden cursor, colours.
const RESET_SEQUENCE: &[u8] =
    b"\x1b[?1047l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?25h\x1b[0m";

/// Raw mode of the terminal, until this is dropped: keys, also ^C, are read one by one and not
/// echoed.
pub(super) struct RawMode {
    before: Termios,
}

impl RawMode {
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        if io::stdout().is_terminal() {
            let mut stdout = io::stdout().lock();
            // Fails only if the terminal is closed.
            let _ = stdout
                .write_all(RESET_SEQUENCE)
                .and_then(|()| stdout.flush());
        }
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// Returns columns and rows. `None` if the terminal does not report them.
pub(super) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(io::stdin()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}
