//! The other screen, on which editors and pagers draw, as text.
//!
//! Exists only while a program uses it: it is larger than all else that a session holds.

use vte::{Params, Perform};

use crate::shell::pty::{COLUMNS, ROWS};

/// The screen as it is now.
pub(super) struct Screen {
    parser: vt100::Parser,
    /// Looks for its end.
    pub(super) watch: Watch,
}

/// Hears nothing but the change of screens.
#[derive(Default)]
pub(super) struct Watch {
    pub(super) switch: Option<bool>,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self { parser: vt100::Parser::new(ROWS, COLUMNS, 0), watch: Watch::default() }
    }

    pub(super) fn draw(&mut self, bytes: &[u8]) {
        self.parser.process(bytes);
    }

    /// Its lines, without blanks at their ends and without empty lines at the end.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for line in self.parser.screen().rows(0, COLUMNS) {
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }
}

impl Perform for Watch {
    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], ignore: bool, action: char) {
        if !ignore {
            self.switch = switch(params, intermediates, action);
        }
    }

    fn terminated(&self) -> bool {
        self.switch.is_some()
    }
}

/// Whether a sequence asks for the other screen (`CSI ? 1049 h`, or one of its ancestors) or gives it back.
pub(super) fn switch(params: &Params, intermediates: &[u8], action: char) -> Option<bool> {
    let asked = match (intermediates, action) {
        (b"?", 'h') => true,
        (b"?", 'l') => false,
        _ => return None,
    };
    params.iter().flatten().any(|mode| [47, 1047, 1049].contains(mode)).then_some(asked)
}
