//! Colours of the transcript, if the terminal supports them and the user has not disabled them.

use std::env;
use std::io::{self, IsTerminal as _};

use clap::builder::styling::{AnsiColor, Style};

/// Kind of a text in the transcript, which determines its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    /// A command, a cell, a tool call.
    Action,
    /// Name of the user or an agent.
    Speaker,
    /// A note of this program.
    Note,
    /// A failure.
    Failure,
}

/// Whether texts are coloured.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Palette {
    is_coloured: bool,
}

impl Palette {
    /// Colours for standard error: on a terminal, unless `NO_COLOR` is set or the terminal is
    /// `dumb`.
    pub(super) fn for_stderr() -> Self {
        let is_forbidden = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            is_coloured: io::stderr().is_terminal() && !is_forbidden && !is_dumb_terminal(),
        }
    }

    /// Colours a text. Line ends around it stay uncoloured.
    pub(super) fn paint(self, kind: TextKind, text: &str) -> String {
        let inner = text.trim_matches('\n');
        if !self.is_coloured || inner.is_empty() {
            return text.to_owned();
        }
        let style = match kind {
            TextKind::Action => Style::new().bold(),
            TextKind::Speaker => AnsiColor::Cyan.on_default().bold(),
            TextKind::Note => Style::new().dimmed(),
            TextKind::Failure => AnsiColor::Red.on_default(),
        };
        let start = text.len() - text.trim_start_matches('\n').len();
        let (before, after) = (&text[..start], &text[start + inner.len()..]);
        format!("{before}{style}{inner}{style:#}{after}")
    }
}

/// Whether the terminal moves no cursor and shows no colours.
pub(super) fn is_dumb_terminal() -> bool {
    env::var_os("TERM").is_some_and(|term| term == "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_coloured_between_its_line_ends() {
        let coloured = Palette { is_coloured: true };
        assert_eq!(
            coloured.paint(TextKind::Action, "\n$ ls\n"),
            "\n\u{1b}[1m$ ls\u{1b}[0m\n"
        );
        assert_eq!(coloured.paint(TextKind::Note, "\n"), "\n");
        assert_eq!(Palette::default().paint(TextKind::Failure, "no\n"), "no\n");
    }
}
