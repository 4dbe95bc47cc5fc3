//! Part of step `format`: names of tests are short enough to read in a list of results.
//!
//! Checks every function, because the suites that run on several implementations are plain
//! functions behind a macro.

use anyhow::{Result, bail};

use crate::workspace::Workspace;

/// Longer names wrap in the output of the test runner.
const MAX_NAME_LENGTH: usize = 60;

pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let mut faults = Vec::new();
    for file in workspace.files()? {
        if file.extension().is_some_and(|extension| extension == "rs") {
            let source = workspace.read(&file)?;
            faults.extend(
                long_names(&source)
                    .map(|(line, name)| format!("{}:{line}: {name}", file.display())),
            );
        }
    }
    if !faults.is_empty() {
        bail!(
            "function names of more than {MAX_NAME_LENGTH} characters:\n{}",
            faults.join("\n")
        );
    }
    Ok(())
}

/// Returns the line number and the name of each function whose name is too long.
fn long_names(source: &str) -> impl Iterator<Item = (usize, &str)> {
    source.lines().zip(1..).filter_map(|(line, number)| {
        let (before, after) = line.split_once("fn ")?;
        let end = after
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(after.len());
        let is_long = end > MAX_NAME_LENGTH && (before.is_empty() || before.ends_with(' '));
        is_long.then(|| (number, &after[..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_name_is_found_with_its_line() {
        let (longest, long) = ("a".repeat(MAX_NAME_LENGTH), "b".repeat(MAX_NAME_LENGTH + 1));
        let source = format!("fn {longest}() {{}}\n    async fn {long}(fixture) {{}}\n");
        assert_eq!(
            long_names(&source).collect::<Vec<_>>(),
            [(2, long.as_str())]
        );
    }
}
