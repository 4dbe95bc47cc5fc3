//! The alternate screen, on which editors and pagers draw, as text. Only exists while a program
//! uses it, because it is large.

use vte::{Params, Perform};

use crate::shell::pty::{COLUMNS, ROWS};

/// The current contents of the screen.
pub(super) struct AlternateScreen {
    parser: vt100::Parser,
    /// Detects the end of its use.
    pub(super) watch: ScreenSwitch,
}

/// Only handles switches of screens.
#[derive(Default)]
pub(super) struct ScreenSwitch {
    pub(super) switch: Option<bool>,
}

impl AlternateScreen {
    pub(super) fn new() -> Self {
        Self {
            parser: vt100::Parser::new(ROWS, COLUMNS, 0),
            watch: ScreenSwitch::default(),
        }
    }

    pub(super) fn draw(&mut self, bytes: &[u8]) {
        self.parser.process(bytes);
    }

    /// Returns its lines, without trailing whitespace and trailing empty lines.
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

impl Perform for ScreenSwitch {
    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], ignore: bool, action: char) {
        if !ignore {
            self.switch = switch(params, intermediates, action);
        }
    }

    fn terminated(&self) -> bool {
        self.switch.is_some()
    }
}

/// Parses a switch to (`CSI ? 1049 h`, or an older variant) or from the alternate screen.
pub(super) fn switch(params: &Params, intermediates: &[u8], action: char) -> Option<bool> {
    let asked = match (intermediates, action) {
        (b"?", 'h') => true,
        (b"?", 'l') => false,
        _ => return None,
    };
    params
        .iter()
        .flatten()
        .any(|mode| [47, 1047, 1049].contains(mode))
        .then_some(asked)
}
