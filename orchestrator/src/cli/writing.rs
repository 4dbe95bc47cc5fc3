//! An answer of the model as it appears on a terminal while it is written: line by line, and each line once.

/// What has come of the answer, and how much of it was shown. Its length is bounded by whoever tells it.
#[derive(Debug, Default)]
pub(super) struct Writing {
    text: String,
    /// Bytes of whole lines.
    shown: usize,
}

impl Writing {
    /// More of the answer. Returns the lines that have ended.
    pub(super) fn more(&mut self, piece: &str) -> &str {
        self.text.push_str(piece);
        let end = self.text.rfind('\n').map_or(0, |end| end + 1);
        let lines = &self.text[self.shown..end];
        // Empty lines before the first word are none.
        if self.shown == 0 && lines.trim().is_empty() {
            return "";
        }
        self.shown = end;
        lines
    }

    /// Whether the next lines are the first.
    pub(super) fn is_new(&self) -> bool {
        self.shown == 0
    }

    /// What of the whole text was not shown; nothing when this is another text, or nothing of it was shown.
    pub(super) fn rest_of<'a>(&self, whole: &'a str) -> Option<&'a str> {
        let shown = self.text[..self.shown].trim();
        if shown.is_empty() { None } else { whole.trim_start().strip_prefix(shown) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_shown_once_and_the_rest_in_the_end() {
        let mut writing = Writing::default();
        assert_eq!(writing.more("\n"), "");
        assert!(writing.is_new());
        assert_eq!(writing.more("One"), "");
        assert_eq!(writing.rest_of("One\nTwo"), None);
        assert_eq!(writing.more(" line.\nAnd"), "\nOne line.\n");
        assert!(!writing.is_new());
        assert_eq!(writing.more(" more\n\n"), "And more\n\n");
        assert_eq!(writing.more("end"), "");
        assert_eq!(writing.rest_of("\nOne line.\nAnd more\n\nend."), Some("\n\nend."));
        assert_eq!(writing.rest_of("Something else"), None);
    }
}
