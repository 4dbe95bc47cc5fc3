//! Bounds the live output of one action: shows the first lines while they are received, and the
//! last ones at the end. Pure.

/// Maximum number of lines that are shown live.
const MAX_LINES: usize = 200;

/// Maximum number of bytes that are shown live.
const MAX_BYTES: usize = 32 << 10;

/// Maximum size of the tail, the part that is shown at the end.
const TAIL_LINES: usize = 20;
const TAIL_BYTES: usize = 4 << 10;

/// Printed after the last line that is shown live.
const MORE: &str = "[more output comes: its last lines are shown when it ends]\n";

/// State of one output.
#[derive(Debug, Default)]
pub(super) struct BoundedOutput {
    lines: usize,
    bytes: usize,
    is_line_open: bool,
    left_out_lines: usize,
    left_out_bytes: usize,
    tail: String,
}

impl BoundedOutput {
    /// Appends output. Returns the part that is shown now.
    pub(super) fn push(&mut self, text: &str) -> String {
        if self.has_left_out() {
            self.leave_out(text);
            return String::new();
        }
        let line_ends = text.match_indices('\n').map(|(at, _)| at + 1);
        let end = match MAX_LINES.saturating_sub(self.lines) {
            0 => 0,
            lines => line_ends.clone().nth(lines - 1).unwrap_or(text.len()),
        };
        let end = text.floor_char_boundary(end.min(MAX_BYTES.saturating_sub(self.bytes)));
        let (shown, rest) = text.split_at(end);
        self.lines += line_ends.take_while(|line_end| *line_end <= end).count();
        self.bytes += end;
        if !shown.is_empty() {
            self.is_line_open = !shown.ends_with('\n');
        }
        if rest.is_empty() {
            return shown.to_owned();
        }
        self.leave_out(rest);
        let line_end = if self.is_line_open { "\n" } else { "" };
        format!("{shown}{line_end}{MORE}")
    }

    /// Whether some of it was left out.
    pub(super) fn has_left_out(&self) -> bool {
        self.left_out_bytes > 0
    }

    /// Returns how much was left out, and the tail. Empty if all was shown.
    pub(super) fn finish(&self) -> String {
        if !self.has_left_out() {
            return String::new();
        }
        let (tail, lines) = (
            &self.tail,
            self.left_out_lines
                .saturating_sub(self.tail.matches('\n').count()),
        );
        let bytes = self.left_out_bytes - tail.len();
        let left_out = match bytes {
            0 => String::new(),
            _ => format!(
                "[{lines} lines, {bytes} bytes left out; the log has what the agent sees]\n"
            ),
        };
        let line_end = if tail.ends_with('\n') { "" } else { "\n" };
        format!("{left_out}{tail}{line_end}")
    }

    fn leave_out(&mut self, text: &str) {
        self.left_out_lines += text.matches('\n').count();
        self.left_out_bytes += text.len();
        self.tail.push_str(text);
        let first = self
            .tail
            .ceil_char_boundary(self.tail.len().saturating_sub(TAIL_BYTES));
        let kept = self.tail.get(first..).unwrap_or_default();
        // The tail starts with a whole line if it contains one.
        let without_end = kept.strip_suffix('\n').unwrap_or(kept);
        let line = match without_end.rmatch_indices('\n').nth(TAIL_LINES - 1) {
            Some((at, _)) => at + 1,
            None if first == 0 => 0,
            None => without_end.find('\n').map_or(0, |at| at + 1),
        };
        self.tail.drain(..first + line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(range: std::ops::RangeInclusive<usize>) -> String {
        range.map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn short_output_is_shown_live() {
        let mut output = BoundedOutput::default();
        assert_eq!([output.push("a"), output.push("b\nc")].concat(), "ab\nc");
        assert_eq!(output.finish(), "");
    }

    #[test]
    fn middle_of_a_long_output_is_left_out_and_counted() {
        let whole = lines(1..=1000);
        for pieces in [vec![whole.as_str()], whole.split_inclusive('\n').collect()] {
            let mut output = BoundedOutput::default();
            let shown: String = pieces.iter().map(|piece| output.push(piece)).collect();
            assert_eq!(shown, lines(1..=MAX_LINES) + MORE);
            let bytes = lines(201..=980).len();
            let left_out =
                format!("[780 lines, {bytes} bytes left out; the log has what the agent sees]\n");
            assert_eq!(output.finish(), left_out + &lines(981..=1000));
        }
    }

    #[test]
    fn output_is_bounded_when_it_has_no_lines() {
        let mut output = BoundedOutput::default();
        let shown: String = (0..100).map(|_| output.push(&"ä".repeat(5000))).collect();
        assert!(shown.len() <= MAX_BYTES + 1 + MORE.len(), "{}", shown.len());
        let end = output.finish();
        assert!(
            end.starts_with("[0 lines, ") && end.len() < TAIL_BYTES + 100,
            "{end}"
        );
    }

    #[test]
    fn output_is_shown_whole_when_its_rest_fits_the_tail() {
        let mut output = BoundedOutput::default();
        assert_eq!(output.push(&lines(1..=210)), lines(1..=200) + MORE);
        assert_eq!(output.finish(), lines(201..=210));
    }
}
