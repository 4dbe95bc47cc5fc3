//! Output of a running action, which is shown while it is received.

use protocol::{Event, EventId};

use super::excerpt::indent;
use crate::cli::bounded_output::BoundedOutput;
use crate::cli::print;

/// Maximum length of an incomplete line that is held back, in bytes.
const MAX_HELD_BYTES: usize = 4096;

pub(super) const GAP: &str = "  [output comes faster than it can be shown: from here on some is missing; the log has what the agent sees]\n";

/// State of the live output of one action.
pub(super) struct LiveOutput {
    pub(super) action: EventId,
    /// The delegate action whose agent performs the action. `None` for the conversation's own
    /// agent.
    pub(super) agent: Option<EventId>,
    has_output: bool,
    is_line_open: bool,
    bounds: BoundedOutput,
    /// A gap in the output was reported.
    has_gap: bool,
    /// The incomplete line of a set-up's output, so that a progress bar is shown once, in its last
    /// state. `None` for actions of agents.
    held: Option<String>,
}

impl LiveOutput {
    /// Starts the output of an action. `holds_lines` shows only complete lines.
    pub(super) fn new(event: &Event, holds_lines: bool) -> Self {
        Self {
            action: event.id,
            agent: event.delegation,
            has_output: false,
            is_line_open: false,
            bounds: BoundedOutput::default(),
            has_gap: false,
            held: holds_lines.then(String::new),
        }
    }

    /// Returns the text that a chunk of output adds.
    pub(super) fn push(&mut self, text: &str) -> String {
        let Some(held) = &mut self.held else {
            return self.show(text);
        };
        held.push_str(text);
        let lines = take_complete_lines(held);
        self.show(&lines)
    }

    /// Returns a note about missing output. Empty after the first gap: a command that floods its
    /// output has gaps all the time.
    pub(super) fn report_gap(&mut self) -> String {
        if std::mem::replace(&mut self.has_gap, true) {
            return String::new();
        }
        // The amount is reported at the end.
        if self.bounds.has_left_out() {
            return String::new();
        }
        let line_end = if std::mem::take(&mut self.is_line_open) {
            "\n"
        } else {
            ""
        };
        format!("{line_end}{GAP}")
    }

    /// Returns the rest of the output: the held line, the end of an incomplete line, and a note on
    /// output that was left out. `None` if there was no output.
    pub(super) fn finish(mut self) -> Option<String> {
        let mut text = self
            .held
            .take()
            .map(|held| self.show(&held))
            .unwrap_or_default();
        if self.is_line_open {
            text.push('\n');
        }
        self.has_output
            .then(|| text + &indent(&self.bounds.finish(), false))
    }

    fn show(&mut self, text: &str) -> String {
        let text = print::for_terminal(text);
        self.has_output |= !text.is_empty();
        let text = self.bounds.push(&text);
        let shown = indent(&text, self.is_line_open);
        if !text.is_empty() {
            self.is_line_open = !text.ends_with('\n');
        }
        shown
    }
}

/// Takes the complete lines, each without the text that a carriage return overwrote, as a terminal
/// shows it. The last carriage return may belong to a line end whose newline was not received yet.
fn take_complete_lines(held: &mut String) -> String {
    let rest = held.split_off(held.rfind('\n').map_or(0, |end| end + 1));
    let complete = std::mem::replace(held, rest);
    let overwritten = held
        .trim_end_matches('\r')
        .rfind('\r')
        .map_or(0, |at| at + 1);
    held.drain(..overwritten);
    let mut lines = String::new();
    for line in complete.lines() {
        lines.push_str(line.rsplit('\r').next().unwrap_or_default());
        lines.push('\n');
    }
    if held.len() > MAX_HELD_BYTES {
        lines.push_str(&std::mem::take(held));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_line_is_shown_when_it_is_too_long() {
        let mut long = "x".repeat(MAX_HELD_BYTES + 1);
        assert_eq!(take_complete_lines(&mut long).len(), MAX_HELD_BYTES + 1);
        assert_eq!(long, "");
    }
}
