//! A regular expression for the text of one line.

use regex_automata::meta::{Config, Regex};
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

use crate::files::error::FileError;

/// Maximum size of the compiled pattern, and of each of its automata.
const MAX_BYTES: usize = 8 << 20;

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Matcher(Regex);

impl Matcher {
    pub(super) fn new(
        pattern: &str,
        is_fixed: bool,
        ignores_case: bool,
    ) -> Result<Self, FileError> {
        let invalid = |problem| {
            Err(FileError::Parameter {
                name: "pattern",
                problem,
            })
        };
        if pattern.contains('\n') || (!is_fixed && has_line_end(pattern)) {
            return invalid("it contains a line end, but lines are matched separately".to_owned());
        }
        let pattern = if is_fixed {
            escaped(pattern)
        } else {
            pattern.to_owned()
        };
        let syntax = syntax::Config::new()
            .multi_line(true)
            .crlf(true)
            .case_insensitive(ignores_case)
            .utf8(false);
        let limits = Config::new()
            .utf8_empty(false)
            .nfa_size_limit(Some(MAX_BYTES))
            .hybrid_cache_capacity(MAX_BYTES);
        match Regex::builder()
            .configure(limits)
            .syntax(syntax)
            .build(&pattern)
        {
            Ok(regex) => Ok(Self(regex)),
            Err(error) => {
                let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
                invalid(format!("{error}{}", source.unwrap_or_default()))
            }
        }
    }

    /// Returns the start of the first match at or after `from`.
    pub(super) fn find(&self, text: &[u8], from: usize) -> Option<usize> {
        let input = Input::new(text).range(from..).anchored(Anchored::No);
        self.0.search(&input).map(|found| found.start())
    }
}

fn has_line_end(pattern: &str) -> bool {
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        if letter == '\\' && letters.next() == Some('n') {
            return true;
        }
    }
    false
}

fn escaped(text: &str) -> String {
    let escape = |letter| r"\.+*?()|[]{}^$#&-~".contains(letter);
    text.chars()
        .flat_map(|letter| escape(letter).then_some('\\').into_iter().chain([letter]))
        .collect()
}
