//! Glob patterns of paths, as in ripgrep and git.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use crate::files::error::FileError;

/// Maximum number of opening braces in a pattern. The parser of patterns nests them without a
/// limit, on the stack.
const MAX_BRACES: usize = 64;

/// Whether a pattern may be too deep for its parser.
pub(super) fn nests_deeply(pattern: &str) -> bool {
    pattern.matches('{').count() > MAX_BRACES
}

/// A pattern without a slash matches names; one with a slash matches the path below the folder.
#[derive(Debug)]
pub(super) struct PathPattern {
    matcher: GlobMatcher,
    matches_names: bool,
}

impl PathPattern {
    /// Parses the pattern in the parameter `name`.
    pub(super) fn new(
        name: &'static str,
        pattern: &str,
        ignores_case: bool,
    ) -> Result<Self, FileError> {
        if nests_deeply(pattern) {
            return Err(FileError::Parameter {
                name,
                problem: format!("more than {MAX_BRACES} braces"),
            });
        }
        let matches_names = !pattern.contains('/');
        let built = GlobBuilder::new(pattern.trim_start_matches('/'))
            .literal_separator(true)
            .case_insensitive(ignores_case)
            .build();
        match built {
            Ok(glob) => Ok(Self {
                matcher: glob.compile_matcher(),
                matches_names,
            }),
            Err(error) => Err(FileError::Parameter {
                name,
                problem: error.to_string(),
            }),
        }
    }

    pub(super) fn matches(&self, below: &Path) -> bool {
        match below.file_name() {
            Some(name) if self.matches_names => self.matcher.is_match(name),
            _ => self.matcher.is_match(below),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_braces_are_refused() {
        let nested = format!("{}a{}", "{".repeat(30_000), "}".repeat(30_000));
        assert!(PathPattern::new("pattern", &nested, false).is_err());
    }

    #[test]
    fn pattern_with_a_slash_matches_the_whole_path() {
        let fits = |pattern: &str, path: &str| {
            PathPattern::new("pattern", pattern, false)
                .unwrap()
                .matches(Path::new(path))
        };
        assert!(fits("*.rs", "a/b/c.rs") && fits("*.{rs,py}", "c.py"));
        assert!(
            fits("a/*.rs", "a/c.rs") && !fits("a/*.rs", "a/b/c.rs") && !fits("a/*.rs", "b/a/c.rs")
        );
        assert!(
            fits("**/*.rs", "c.rs") && fits("a/**/c.rs", "a/b/b/c.rs") && fits("/c.rs", "c.rs")
        );
        assert!(!fits("/c.rs", "a/c.rs") && !fits("*.RS", "c.rs"));
        assert!(
            PathPattern::new("pattern", "*.RS", true)
                .unwrap()
                .matches(Path::new("c.rs"))
        );
        assert!(
            PathPattern::new("glob", "a{b", false)
                .unwrap_err()
                .to_string()
                .contains("`glob`")
        );
    }
}
