//! Each dependency with a version of its own has a comment that states its reason.
//!
//! The comment is at the end of the line, or above it in the same paragraph, where it applies to a
//! group. Lines with `workspace = true` or a path need none. Manifests are read line by line,
//! because a TOML parser drops comments.

use std::path::Path;

use anyhow::Result;

use crate::workspace::Workspace;

pub(super) fn missing_in(workspace: &Workspace, manifest: &Path) -> Result<Vec<String>> {
    let text = workspace.read(manifest)?;
    let file = manifest
        .strip_prefix(&workspace.root)
        .unwrap_or(manifest)
        .display()
        .to_string();
    Ok(missing(&text)
        .into_iter()
        .map(|fault| format!("{file}: {fault}"))
        .collect())
}

fn missing(manifest: &str) -> Vec<String> {
    let mut scanner = ManifestScanner::default();
    manifest
        .lines()
        .filter_map(|line| scanner.check_line(line.trim()))
        .collect()
}

/// Position in a manifest.
#[derive(Default)]
struct ManifestScanner {
    in_dependencies: bool,
    paragraph_has_comment: bool,
    open_brackets: usize,
}

impl ManifestScanner {
    /// Checks the next line. `None` if it is correct.
    fn check_line(&mut self, line: &str) -> Option<String> {
        let ManifestLine { code, comment } = ManifestLine::split(line);
        let continues = self.open_brackets > 0;
        self.open_brackets =
            (self.open_brackets + count(code, ['[', '{'])).saturating_sub(count(code, [']', '}']));
        if continues {
            return None;
        }
        if let Some(header) = code.strip_prefix('[') {
            return self.enter_section(header.trim_end_matches(']'));
        }
        if code.is_empty() {
            self.paragraph_has_comment = comment; // an empty line ends the paragraph
            return None;
        }
        let needs_reason = self.in_dependencies && !is_inherited_or_local(code);
        let unexplained = needs_reason && !comment && !self.paragraph_has_comment;
        unexplained.then(|| format!("`{}` has no comment with its reason", name(code)))
    }

    fn enter_section(&mut self, header: &str) -> Option<String> {
        self.paragraph_has_comment = false;
        self.in_dependencies = header.ends_with("dependencies");
        let own_table = header
            .rsplit_once('.')
            .is_some_and(|(table, _)| table.ends_with("dependencies"));
        own_table.then(|| format!("`[{header}]`: write it in one line with its reason"))
    }
}

struct ManifestLine<'a> {
    code: &'a str,
    comment: bool,
}

impl<'a> ManifestLine<'a> {
    /// Splits at the first `#` outside of strings.
    fn split(line: &'a str) -> Self {
        let mut quote = None;
        for (at, character) in line.char_indices() {
            match (quote, character) {
                (None, '#') => {
                    return Self {
                        code: line[..at].trim_end(),
                        comment: true,
                    };
                }
                (None, '"' | '\'') => quote = Some(character),
                (Some(open), _) if open == character => quote = None,
                _ => {}
            }
        }
        Self {
            code: line,
            comment: false,
        }
    }
}

fn count(code: &str, brackets: [char; 2]) -> usize {
    code.matches(brackets).count()
}

fn name(code: &str) -> &str {
    code.split(['=', '.']).next().unwrap_or(code).trim()
}

fn is_inherited_or_local(code: &str) -> bool {
    let code: String = code.split_whitespace().collect();
    code.contains("workspace=true") || code.contains("path=\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comment_is_accepted_at_line_end_above_or_over_a_group() {
        let manifest = r##"
[package]
name = "x"

[dependencies]
ours = { path = "../ours" }
serde.workspace = true
tokio = { workspace = true, features = [
    "rt",
] }
toml = "1" # config.toml

# HTTP
http = "1"
hyper = { version = "1", features = [
    "http2",
] }
"##;
        assert!(missing(manifest).is_empty());
    }

    #[test]
    fn group_ends_at_an_empty_line_or_a_section() {
        let manifest = "[dependencies]\n# one\na = \"1\"\n\nb = \"1\"\n[dev-dependencies]\nc = \"1\"\n[lints]\nd = 1";
        assert_eq!(
            missing(manifest),
            [
                "`b` has no comment with its reason",
                "`c` has no comment with its reason"
            ]
        );
    }

    #[test]
    fn hash_in_a_string_is_no_comment() {
        assert_eq!(
            missing("[target.'cfg(unix)'.dependencies]\na = { git = \"x#y\" }"),
            ["`a` has no comment with its reason"]
        );
    }

    #[test]
    fn dependency_table_is_a_fault() {
        assert_eq!(
            missing("[dependencies.a]\nversion = \"1\""),
            ["`[dependencies.a]`: write it in one line with its reason"]
        );
    }
}
