//! A dependency is a decision: its version stands in one place, with the reason beside it.
//!
//! A line that takes `workspace = true` or a path decides nothing. Any other needs a comment: at its end, or above it in
//! the same paragraph (one comment may speak for a group). Read line by line, because a TOML parser drops comments.

use std::path::Path;

use anyhow::Result;

use crate::workspace::Workspace;

pub(super) fn missing_in(workspace: &Workspace, manifest: &Path) -> Result<Vec<String>> {
    let text = workspace.read(manifest)?;
    let file = manifest.strip_prefix(&workspace.root).unwrap_or(manifest).display().to_string();
    Ok(missing(&text).into_iter().map(|fault| format!("{file}: {fault}")).collect())
}

fn missing(manifest: &str) -> Vec<String> {
    let mut reader = Reader::default();
    manifest.lines().filter_map(|line| reader.line(line.trim())).collect()
}

/// Where in a manifest we are.
#[derive(Default)]
struct Reader {
    in_dependencies: bool,
    paragraph_has_comment: bool,
    open_brackets: usize,
}

impl Reader {
    /// Takes the next line; returns what is wrong with it.
    fn line(&mut self, line: &str) -> Option<String> {
        let Line { code, comment } = Line::split(line);
        let continues = self.open_brackets > 0;
        self.open_brackets =
            (self.open_brackets + count(code, ['[', '{'])).saturating_sub(count(code, [']', '}']));
        if continues {
            return None;
        }
        if let Some(header) = code.strip_prefix('[') {
            return self.section(header.trim_end_matches(']'));
        }
        if code.is_empty() {
            self.paragraph_has_comment = comment; // an empty line ends the paragraph
            return None;
        }
        let decided = self.in_dependencies && !takes_it_from_elsewhere(code);
        let unexplained = decided && !comment && !self.paragraph_has_comment;
        unexplained.then(|| format!("`{}` has no reason beside it", name(code)))
    }

    fn section(&mut self, header: &str) -> Option<String> {
        self.paragraph_has_comment = false;
        self.in_dependencies = header.ends_with("dependencies");
        let own_table = header.rsplit_once('.').is_some_and(|(table, _)| table.ends_with("dependencies"));
        own_table.then(|| format!("`[{header}]`: write it in one line, with its reason"))
    }
}

struct Line<'a> {
    code: &'a str,
    comment: bool,
}

impl<'a> Line<'a> {
    /// A `#` inside a string is no comment.
    fn split(line: &'a str) -> Self {
        let mut quote = None;
        for (at, character) in line.char_indices() {
            match (quote, character) {
                (None, '#') => return Self { code: line[..at].trim_end(), comment: true },
                (None, '"' | '\'') => quote = Some(character),
                (Some(open), _) if open == character => quote = None,
                _ => {}
            }
        }
        Self { code: line, comment: false }
    }
}

fn count(code: &str, brackets: [char; 2]) -> usize {
    code.matches(brackets).count()
}

fn name(code: &str) -> &str {
    code.split(['=', '.']).next().unwrap_or(code).trim()
}

fn takes_it_from_elsewhere(code: &str) -> bool {
    let code: String = code.split_whitespace().collect();
    code.contains("workspace=true") || code.contains("path=\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_stands_at_the_end_above_or_over_the_group() {
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
    fn a_group_ends_at_the_empty_line_and_at_the_section() {
        let manifest =
            "[dependencies]\n# one\na = \"1\"\n\nb = \"1\"\n[dev-dependencies]\nc = \"1\"\n[lints]\nd = 1";
        assert_eq!(missing(manifest), ["`b` has no reason beside it", "`c` has no reason beside it"]);
    }

    #[test]
    fn a_hash_in_a_string_is_no_reason() {
        assert_eq!(
            missing("[target.'cfg(unix)'.dependencies]\na = { git = \"x#y\" }"),
            ["`a` has no reason beside it"]
        );
    }

    #[test]
    fn a_table_of_its_own_hides_the_reason() {
        assert_eq!(
            missing("[dependencies.a]\nversion = \"1\""),
            ["`[dependencies.a]`: write it in one line, with its reason"]
        );
    }
}
