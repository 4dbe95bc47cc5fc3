//! Colours of the transcript, where there is a terminal that shows them and nobody has forbidden them.

use std::env;
use std::io::{self, IsTerminal as _};

use clap::builder::styling::{AnsiColor, Style};

/// What a part of the transcript is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// A command, a cell, a call of a tool.
    Action,
    /// Who speaks.
    Speaker,
    /// A message of ours in the midst of others' text.
    Note,
    /// What failed.
    Failure,
}

/// Whether parts are coloured.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Palette {
    is_coloured: bool,
}

impl Palette {
    /// Colours for standard error: on a terminal, unless `NO_COLOR` is set or the terminal is `dumb`.
    pub(super) fn of_stderr() -> Self {
        let is_forbidden = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { is_coloured: io::stderr().is_terminal() && !is_forbidden && !is_dumb_terminal() }
    }

    /// The text in the colour of a part. Line ends around it stay outside.
    pub(super) fn paint(self, part: Part, text: &str) -> String {
        let inner = text.trim_matches('\n');
        if !self.is_coloured || inner.is_empty() {
            return text.to_owned();
        }
        let style = match part {
            Part::Action => Style::new().bold(),
            Part::Speaker => AnsiColor::Cyan.on_default().bold(),
            Part::Note => Style::new().dimmed(),
            Part::Failure => AnsiColor::Red.on_default(),
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
    fn a_part_is_coloured_between_its_line_ends() {
        let coloured = Palette { is_coloured: true };
        assert_eq!(coloured.paint(Part::Action, "\n$ ls\n"), "\n\u{1b}[1m$ ls\u{1b}[0m\n");
        assert_eq!(coloured.paint(Part::Note, "\n"), "\n");
        assert_eq!(Palette::default().paint(Part::Failure, "no\n"), "no\n");
    }
}
