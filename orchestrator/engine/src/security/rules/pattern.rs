//! Patterns of rules: command words, paths and hosts.

use globset::{GlobBuilder, GlobMatcher};

use super::super::shell::{Expansion, Word};

/// Whether a pattern matches. Of several results the highest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Match {
    No,
    /// Depends on the shell's expansion of a word.
    Maybe,
    Yes,
}

/// The error of an invalid pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PatternError {
    #[error("an empty pattern matches nothing")]
    Empty,
    #[error("{pattern:?} is not a valid pattern: {problem}")]
    Glob { pattern: String, problem: String },
}

/// A program, and words that occur among its arguments in this order. Short options match in any
/// order and grouping, and long options of `rm` like the short ones.
#[derive(Debug, Clone)]
pub(super) struct CommandPattern {
    program: TextPattern,
    arguments: Vec<TextPattern>,
    /// The letters of short options.
    flags: Vec<char>,
}

/// A path, or the content of a folder as in `/etc/**`. Matches at any depth unless it starts with
/// `/` or `~`.
#[derive(Debug, Clone)]
pub(super) struct PathPattern(Vec<TextPattern>);

/// A host name, such as `*.example.com`.
#[derive(Debug, Clone)]
pub(super) struct HostPattern(TextPattern);

#[derive(Debug, Clone)]
struct TextPattern {
    glob: GlobMatcher,
    /// The common prefix of all matching texts.
    prefix: String,
    /// Whether only the prefix itself matches.
    is_literal: bool,
}

/// Long options of `rm`, with the equivalent short ones.
const RM_OPTIONS: [(&str, &str); 2] = [("--recursive", "r"), ("--force", "f")];

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
        let prefix: String = pattern
            .chars()
            .take_while(|character| !"*?[{\\".contains(*character))
            .collect();
        Ok(Self {
            glob: glob.compile_matcher(),
            is_literal: prefix.len() == pattern.len(),
            prefix,
        })
    }

    fn matches(&self, word: &Word) -> Match {
        if word.is_certain() {
            return if self.glob.is_match(&word.text) {
                Match::Yes
            } else {
                Match::No
            };
        }
        // In a path, `..` or a further word may follow.
        if word.expansion == Expansion::Any {
            return Match::Maybe;
        }
        let may_start_with = word.text.starts_with(&self.prefix)
            && !(self.is_literal && word.text.len() > self.prefix.len());
        if may_start_with || self.prefix.starts_with(&word.text) {
            Match::Maybe
        } else {
            Match::No
        }
    }
}

impl TryFrom<String> for CommandPattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or_default();
        let program = TextPattern::new(name, false)?;
        let mut flags = Vec::new();
        let mut arguments = Vec::new();
        for word in words {
            match option_letters(name, word) {
                Some(letters) => flags.extend(letters.chars()),
                None => arguments.push(TextPattern::new(word, false)?),
            }
        }
        Ok(Self {
            program,
            arguments,
            flags,
        })
    }
}

impl CommandPattern {
    /// Whether it matches a command. If the pattern has no folder, a program in a folder matches by
    /// its name only with `ignores_folder`.
    pub(super) fn matches(&self, words: &[Word], ignores_folder: bool) -> Match {
        let Some((program, arguments)) = words.split_first() else {
            return Match::No;
        };
        let pattern = self.program.glob.glob().glob();
        let program_match = match program.text.rsplit_once('/') {
            Some(_) if pattern.contains('/') || pattern == "*" => self.program.matches(program),
            Some((_, name)) if ignores_folder => self.program.matches(&Word {
                text: name.to_owned(),
                ..program.clone()
            }),
            Some(_) => Match::No,
            None => self.program.matches(program),
        };
        program_match.min(self.match_arguments(&program.text, arguments))
    }

    fn match_arguments(&self, program: &str, words: &[Word]) -> Match {
        let has_flag = |letter: &char| {
            let mut options = words
                .iter()
                .filter_map(|word| option_letters(program, &word.text));
            options.any(|letters| letters.contains(*letter))
        };
        let mut rest = words.iter();
        let has_arguments = self
            .arguments
            .iter()
            .all(|pattern| rest.any(|word| pattern.matches(word) == Match::Yes));
        if has_arguments && self.flags.iter().all(has_flag) {
            Match::Yes
        } else if words.iter().any(|word| !word.is_certain()) {
            Match::Maybe
        } else {
            Match::No
        }
    }
}

/// Returns the letters of short options such as `-rf`. `None` for a long option, except for options
/// of `rm` with a short equivalent.
fn option_letters(program: &str, word: &str) -> Option<String> {
    let is_rm = program.rsplit('/').next() == Some("rm");
    let letters = match word.strip_prefix('-')? {
        "" | "-" => return None,
        long if long.starts_with('-') => {
            // GNU programs accept abbreviations.
            let mut equivalents = RM_OPTIONS.iter().filter(|_| is_rm);
            return equivalents
                .find(|(option, _)| option.starts_with(word))
                .map(|(_, letter)| (*letter).to_owned());
        }
        letters => letters,
    };
    Some(match is_rm {
        true => letters.replace('R', "r"),
        false => letters.to_owned(),
    })
}

impl TryFrom<String> for PathPattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        let mut patterns = Vec::new();
        for path in expand_path(&text) {
            patterns.push(TextPattern::new(&path, true)?);
            // Access to the folder includes its content.
            if let Some(folder) = path
                .strip_suffix("/**")
                .filter(|folder| !folder.is_empty() && *folder != "**")
            {
                patterns.push(TextPattern::new(folder, true)?);
            }
        }
        Ok(Self(patterns))
    }
}

/// Returns the globs of a path pattern: one for each home directory, or one for each depth.
fn expand_path(pattern: &str) -> Vec<String> {
    match pattern.strip_prefix("~/") {
        Some(rest) => ["~", "/root", "/home/*"]
            .map(|home| format!("{home}/{rest}"))
            .to_vec(),
        None if pattern.starts_with(['/', '~']) || pattern.starts_with("**") => {
            vec![pattern.to_owned()]
        }
        None => vec![pattern.to_owned(), format!("**/{pattern}")],
    }
}

impl PathPattern {
    pub(super) fn matches(&self, path: &Word) -> Match {
        let path = normalize_path(path);
        self.0
            .iter()
            .map(|pattern| pattern.matches(&path))
            .max()
            .unwrap_or(Match::No)
    }
}

/// Removes `.`, `..` and repeated slashes. A path that leaves an unknown folder is not certain.
fn normalize_path(path: &Word) -> Word {
    let mut parts: Vec<&str> = Vec::new();
    let is_absolute = path.text.starts_with('/');
    let mut expansion = path.expansion;
    for part in path.text.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_some_and(|part| part != "~") || is_absolute => {}
            ".." => {
                expansion = Expansion::Any;
                parts.clear();
                break;
            }
            part => parts.push(part),
        }
    }
    let root = if is_absolute { "/" } else { "" };
    let end = if expansion != Expansion::None && path.text.ends_with('/') && !parts.is_empty() {
        "/"
    } else {
        ""
    };
    Word {
        text: format!("{root}{}{end}", parts.join("/")),
        expansion,
        is_single: path.is_single,
    }
}

impl TryFrom<String> for HostPattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        TextPattern::new(&text.to_ascii_lowercase(), false).map(Self)
    }
}

impl HostPattern {
    pub(super) fn matches(&self, host: &Word) -> Match {
        if self.0.glob.glob().glob() == "*" {
            return Match::Yes;
        }
        self.0.matches(&Word {
            text: host.text.to_ascii_lowercase(),
            ..host.clone()
        })
    }
}
