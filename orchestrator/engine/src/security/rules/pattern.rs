//! What a rule is compared with: words of commands, paths, hosts.

use globset::{GlobBuilder, GlobMatcher};

use super::super::shell::Word;

/// How well something matches. The best of several counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Likeness {
    No,
    /// It depends on what the shell makes of a word.
    Maybe,
    Yes,
}

/// A pattern that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PatternError {
    #[error("an empty pattern matches nothing")]
    Empty,
    #[error("{pattern:?} is no pattern: {problem}")]
    Glob { pattern: String, problem: String },
}

/// A program and words that stand among its arguments in this order; short options in any order and grouping.
#[derive(Debug, Clone)]
pub(super) struct CommandPattern {
    program: TextPattern,
    arguments: Vec<TextPattern>,
    /// Letters of short options.
    flags: Vec<char>,
}

/// A path, or a folder's content as `/etc/**`. One that does not begin with `/` or `~` stands at any depth.
#[derive(Debug, Clone)]
pub(super) struct PathPattern(Vec<TextPattern>);

/// A host's name, as in `*.example.com`.
#[derive(Debug, Clone)]
pub(super) struct HostPattern(TextPattern);

#[derive(Debug, Clone)]
struct TextPattern {
    glob: GlobMatcher,
    /// What every text begins with that matches.
    prefix: String,
    /// Whether nothing but the prefix matches.
    is_text: bool,
}

impl TextPattern {
    fn new(pattern: &str, is_path: bool) -> Result<Self, PatternError> {
        if pattern.is_empty() {
            return Err(PatternError::Empty);
        }
        let glob = GlobBuilder::new(pattern).literal_separator(is_path).build();
        let glob = glob.map_err(|error| PatternError::Glob {
            pattern: pattern.to_owned(),
            problem: error.kind().to_string(),
        })?;
        let prefix: String = pattern.chars().take_while(|letter| !"*?[{\\".contains(*letter)).collect();
        Ok(Self { glob: glob.compile_matcher(), is_text: prefix.len() == pattern.len(), prefix })
    }

    fn matches(&self, word: &Word) -> Likeness {
        if word.is_certain {
            return if self.glob.is_match(&word.text) { Likeness::Yes } else { Likeness::No };
        }
        let may_begin_so =
            word.text.starts_with(&self.prefix) && !(self.is_text && word.text.len() > self.prefix.len());
        if may_begin_so || self.prefix.starts_with(&word.text) { Likeness::Maybe } else { Likeness::No }
    }
}

impl TryFrom<String> for CommandPattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        let mut words = text.split_whitespace();
        let program = TextPattern::new(words.next().unwrap_or_default(), false)?;
        let mut flags = Vec::new();
        let mut arguments = Vec::new();
        for word in words {
            match short_options(word) {
                Some(letters) => flags.extend(letters.chars()),
                None => arguments.push(TextPattern::new(word, false)?),
            }
        }
        Ok(Self { program, arguments, flags })
    }
}

impl CommandPattern {
    pub(super) fn matches(&self, words: &[Word]) -> Likeness {
        let Some((program, given)) = words.split_first() else { return Likeness::No };
        // What the program is matters; a path to it does not, unless the pattern has one.
        let name = match program.text.rsplit_once('/') {
            Some((_, name)) if program.is_certain && !self.program.prefix.contains('/') => name,
            _ => &program.text,
        };
        let likeness = self.program.matches(&Word { text: name.to_owned(), ..program.clone() });
        likeness.min(self.match_arguments(given))
    }

    fn match_arguments(&self, given: &[Word]) -> Likeness {
        let has_flag = |letter: &char| {
            let mut options = given.iter().filter_map(|word| short_options(&word.text));
            options.any(|letters| letters.contains(*letter))
        };
        let mut rest = given.iter();
        let has_arguments =
            self.arguments.iter().all(|wanted| rest.any(|word| wanted.matches(word) == Likeness::Yes));
        if has_arguments && self.flags.iter().all(has_flag) {
            Likeness::Yes
        } else if given.iter().any(|word| !word.is_certain) {
            Likeness::Maybe
        } else {
            Likeness::No
        }
    }
}

/// The letters of `-rf`; not of a long option.
fn short_options(word: &str) -> Option<&str> {
    word.strip_prefix('-').filter(|letters| !letters.is_empty() && !letters.starts_with('-'))
}

impl TryFrom<String> for PathPattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        let mut patterns = Vec::new();
        for path in spellings(&text) {
            patterns.push(TextPattern::new(&path, true)?);
            // A folder's content is touched with the folder.
            if let Some(folder) =
                path.strip_suffix("/**").filter(|folder| !folder.is_empty() && *folder != "**")
            {
                patterns.push(TextPattern::new(folder, true)?);
            }
        }
        if patterns.is_empty() { Err(PatternError::Empty) } else { Ok(Self(patterns)) }
    }
}

/// A home may be written in several ways.
fn spellings(pattern: &str) -> Vec<String> {
    match pattern.strip_prefix("~/") {
        Some(rest) => ["~", "/root", "/home/*"].map(|home| format!("{home}/{rest}")).to_vec(),
        None if pattern.is_empty() => Vec::new(),
        None if pattern.starts_with(['/', '~']) || pattern.starts_with("**") => vec![pattern.to_owned()],
        None => vec![pattern.to_owned(), format!("**/{pattern}")],
    }
}

impl PathPattern {
    pub(super) fn matches(&self, path: &Word) -> Likeness {
        let path = clean(path);
        self.0.iter().map(|pattern| pattern.matches(&path)).max().unwrap_or(Likeness::No)
    }
}

/// A path without `.`, `..` and doubled slashes. What goes up from an unknown folder is not certain.
fn clean(path: &Word) -> Word {
    let mut parts: Vec<&str> = Vec::new();
    let is_absolute = path.text.starts_with('/');
    let mut is_certain = path.is_certain;
    for part in path.text.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_some_and(|part| part != "~") || is_absolute => {}
            ".." => {
                is_certain = false;
                parts.clear();
                break;
            }
            part => parts.push(part),
        }
    }
    let root = if is_absolute { "/" } else { "" };
    let end = if !is_certain && path.text.ends_with('/') && !parts.is_empty() { "/" } else { "" };
    Word { text: format!("{root}{}{end}", parts.join("/")), is_certain }
}

impl TryFrom<String> for HostPattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        TextPattern::new(&text.to_ascii_lowercase(), false).map(Self)
    }
}

impl HostPattern {
    pub(super) fn matches(&self, host: &Word) -> Likeness {
        if self.0.glob.glob().glob() == "*" {
            return Likeness::Yes;
        }
        self.0.matches(&Word { text: host.text.to_ascii_lowercase(), ..host.clone() })
    }
}
