//! An answer of the model that is shown while it is streamed: line by line, and each line once.

/// The received part of an answer, and how much of it was shown. The model client bounds its length.
#[derive(Debug, Default)]
pub(super) struct PartialAnswer {
    text: String,
    /// Length of the shown lines in bytes.
    shown_bytes: usize,
}

impl PartialAnswer {
    /// Appends a piece of the answer. Returns the lines that it completes.
    pub(super) fn push(&mut self, piece: &str) -> &str {
        self.text.push_str(piece);
        let end = self.text.rfind('\n').map_or(0, |end| end + 1);
        let lines = &self.text[self.shown_bytes..end];
        // Empty lines before the first word are not shown.
        if self.shown_bytes == 0 && lines.trim().is_empty() {
            return "";
        }
        self.shown_bytes = end;
        lines
    }

    /// Whether no line was shown yet.
    pub(super) fn is_unshown(&self) -> bool {
        self.shown_bytes == 0
    }

    /// Returns the part of the whole text that was not shown. `None` if the whole text is another one, or nothing was shown.
    pub(super) fn remaining<'a>(&self, whole: &'a str) -> Option<&'a str> {
        let shown = self.text[..self.shown_bytes].trim();
        if shown.is_empty() { None } else { whole.trim_start().strip_prefix(shown) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_shown_once_and_the_rest_at_the_end() {
        let mut answer = PartialAnswer::default();
        assert_eq!(answer.push("\n"), "");
        assert!(answer.is_unshown());
        assert_eq!(answer.push("One"), "");
        assert_eq!(answer.remaining("One\nTwo"), None);
        assert_eq!(answer.push(" line.\nAnd"), "\nOne line.\n");
        assert!(!answer.is_unshown());
        assert_eq!(answer.push(" more\n\n"), "And more\n\n");
        assert_eq!(answer.push("end"), "");
        assert_eq!(answer.remaining("\nOne line.\nAnd more\n\nend."), Some("\n\nend."));
        assert_eq!(answer.remaining("Something else"), None);
    }
}
