//! An answer of the model that is shown while it is streamed: word by word, and each word once.

/// The received part of an answer, and how much of it was shown. The model client bounds its
/// length.
#[derive(Debug, Default)]
pub(super) struct PartialAnswer {
    text: String,
    /// Length of the shown words in bytes.
    shown_bytes: usize,
    /// The last shown line is incomplete.
    is_line_open: bool,
}

impl PartialAnswer {
    /// Appends a piece of the answer. Returns the words that it completes: secrets are redacted in
    /// whole words only.
    pub(super) fn push(&mut self, piece: &str) -> &str {
        self.text.push_str(piece);
        // Empty lines before the first word are not shown.
        let start = self.text.len() - self.text.trim_start().len();
        let start = start.max(self.shown_bytes);
        let rest = &self.text[start..];
        let end = rest.char_indices().rfind(|(_, char)| char.is_whitespace());
        let words = end.map_or("", |(at, space)| &rest[..at + space.len_utf8()]);
        if !words.is_empty() {
            self.shown_bytes = start + words.len();
            self.is_line_open = !words.ends_with('\n');
        }
        words
    }

    /// Whether no word was shown yet.
    pub(super) fn is_unshown(&self) -> bool {
        self.shown_bytes == 0
    }

    /// Returns what ends the last shown line: a newline, or nothing.
    pub(super) fn end_line(&mut self) -> &'static str {
        if std::mem::take(&mut self.is_line_open) {
            "\n"
        } else {
            ""
        }
    }

    /// Returns the part of the whole text that was not shown, with the end of the last line. `None`
    /// if the whole text is another one, or nothing was shown.
    pub(super) fn finish(self, whole: &str) -> Option<String> {
        let shown = self.text[..self.shown_bytes].trim_start();
        let whole = whole.trim();
        let rest = whole
            .strip_prefix(shown)
            .or_else(|| whole.strip_prefix(shown.trim_end()));
        let rest = rest.filter(|_| !shown.is_empty())?;
        let end = if rest.is_empty() && !self.is_line_open {
            ""
        } else {
            "\n"
        };
        Some(format!("{rest}{end}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_shown_once_and_the_rest_at_the_end() {
        let mut answer = PartialAnswer::default();
        assert_eq!(answer.push("\n"), "");
        assert_eq!(answer.push("One"), "");
        assert!(answer.is_unshown());
        assert_eq!(answer.push(" line.\nAnd"), "One line.\n");
        assert_eq!(answer.end_line(), "");
        assert_eq!(answer.push(" more\n\nto t"), "And more\n\nto ");
        assert_eq!(answer.end_line(), "\n");
        assert_eq!(
            answer.finish("\nOne line.\nAnd more\n\nto the end."),
            Some("the end.\n".to_owned())
        );
    }

    #[test]
    fn another_text_is_not_the_rest() {
        let shown = |text: &str| {
            let mut answer = PartialAnswer::default();
            answer.push(text);
            answer
        };
        assert_eq!(shown("One line\n").finish("Something else"), None);
        assert_eq!(shown("One").finish("One line"), None);
        assert_eq!(shown("One ").finish("One"), Some("\n".to_owned()));
        assert_eq!(shown("One\n").finish("One"), Some(String::new()));
        assert_eq!(
            shown("One\n").finish("One\n\nTwo"),
            Some("\nTwo\n".to_owned())
        );
    }
}
