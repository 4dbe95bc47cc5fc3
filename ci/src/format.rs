//! Step `format`: checks the output of `cargo fmt`, the length of test names and the width of
//! comments. Never changes a file.

use anyhow::{Result, bail};

use crate::command;
use crate::step::Notes;
use crate::test_names;
use crate::workspace::Workspace;

/// The width to which `cargo fmt` breaks code.
const MAX_WIDTH: usize = 100;

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    command::stream(
        workspace.cargo().args(["fmt", "--all", "--check"]),
        "cargo fmt --check",
    )?;
    test_names::check(workspace)?;
    check_comments(workspace)?;
    Ok(Notes::new())
}

/// Fails if comments are wider than code, which `cargo fmt` leaves alone.
fn check_comments(workspace: &Workspace) -> Result<()> {
    let mut faults = Vec::new();
    for file in workspace.files()? {
        if file.extension().is_some_and(|extension| extension == "rs") {
            let source = workspace.read(&file)?;
            faults.extend(wide_comments(&source).map(|line| format!("{}:{line}", file.display())));
        }
    }
    if !faults.is_empty() {
        bail!(
            "comments of more than {MAX_WIDTH} columns:\n{}",
            faults.join("\n")
        );
    }
    Ok(())
}

/// Returns the numbers of the lines that are too long. Rows of tables and addresses cannot be
/// broken.
fn wide_comments(source: &str) -> impl Iterator<Item = usize> {
    let numbered = source.lines().zip(1..);
    numbered.filter_map(|(line, number)| {
        let text = line
            .trim_start()
            .strip_prefix("//")?
            .trim_start_matches(['/', '!', ' ']);
        let is_breakable = !text.starts_with('|') && text.contains(' ') && !text.contains("://");
        (is_breakable && line.chars().count() > MAX_WIDTH).then_some(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_comment_is_found_with_its_line() {
        let [wide, code] = ["// ", "let x = "].map(|start| format!("{start}{}", "a ".repeat(60)));
        let source = format!("{code}\n    {wide}\n/// | {wide}\n//! http://a.b/{wide}\n// short\n");
        assert_eq!(wide_comments(&source).collect::<Vec<_>>(), [2]);
    }
}
