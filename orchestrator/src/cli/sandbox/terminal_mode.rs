//! The terminal that this program has: its size, and its mode while another terminal is shown on it.

use std::io::{self, IsTerminal as _, Write as _};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// What a program inside may have left on: other screens, colours, reports of the mouse and of pastes, a hidden cursor.
const CALM: &[u8] = b"\x1b[?1047l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?25h\x1b[0m";

/// Keys come one by one and unseen, ^C and its like too, until this is dropped.
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
            // A terminal that is gone needs no calm.
            let _ = stdout.write_all(CALM).and_then(|()| stdout.flush());
        }
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// Columns and rows; a terminal that does not know says nothing.
pub(super) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(io::stdin()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}
