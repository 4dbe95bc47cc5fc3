//! Bounds and indents texts for the transcript. Pure.

use std::borrow::Cow;

use crate::cli::print;

/// Maximum number of lines of an excerpt.
const MAX_LINES: usize = 30;

/// Maximum length of a line of an excerpt, in bytes.
const MAX_LINE_BYTES: usize = 2000;

/// Sanitizes a text for the terminal.
pub(super) fn clean(text: &str) -> String {
    print::for_terminal(text.trim_end())
}

/// Returns the first lines of a text, indented, and the number of further lines.
pub(super) fn excerpt(text: &str) -> String {
    let text = clean(text);
    if text.is_empty() {
        return String::new();
    }
    let lines: Vec<_> = text
        .lines()
        .map(|line| shorten(line, MAX_LINE_BYTES))
        .collect();
    let mut shown = indent(&lines[..lines.len().min(MAX_LINES)].join("\n"), false);
    if lines.len() > MAX_LINES {
        shown.push_str(&format!("\n  … {} more lines", lines.len() - MAX_LINES));
    }
    shown + "\n"
}

/// Returns at most `max_bytes` of a text, and the number of further bytes.
pub(super) fn shorten(text: &str, max_bytes: usize) -> Cow<'_, str> {
    match text.get(..text.floor_char_boundary(max_bytes)) {
        Some(shown) if shown.len() < text.len() => {
            format!("{shown} … {} more bytes", text.len() - shown.len()).into()
        }
        _ => text.into(),
    }
}

/// Indents each line by two columns, except the first if it continues an incomplete line.
pub(super) fn indent(text: &str, is_line_open: bool) -> String {
    let mut shown = String::with_capacity(text.len() + 16);
    let mut at_line_start = !is_line_open;
    for character in text.chars() {
        if at_line_start && character != '\n' {
            shown.push_str("  ");
        }
        at_line_start = character == '\n';
        shown.push(character);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_truncated_with_a_line_count() {
        let text = (0..100)
            .map(|n| n.to_string())
            .collect::<Vec<_>>()
            .join("\n");
        assert!(excerpt(&text).ends_with("  29\n  … 70 more lines\n"));
    }
}
