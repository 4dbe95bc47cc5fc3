//! Command lines in the documentation: each `cargo ci …` in a shell block names steps that exist.
//! Those of `glovebox` are checked by its own tests (`documentation`), which know its arguments.

use std::path::Path;

use anyhow::Result;

use super::markdown;
use crate::command;
use crate::invocation::Invocation;
use crate::report;
use crate::workspace::Workspace;

/// Returns the invalid calls of `cargo ci` on `page`, whose content is `text`.
pub(super) fn faults(page: &Path, text: &str) -> Vec<String> {
    let calls = markdown::code(text, "sh").filter_map(arguments_of_cargo_ci);
    let errors = calls.filter_map(|arguments| Invocation::parse(arguments).err());
    errors
        .map(|error| format!("{}: {error:#}", page.display()))
        .collect()
}

/// Runs the tests of `glovebox` that compare the documentation with the program. `None` if they
/// pass.
pub(super) fn fault_of_program(workspace: &Workspace) -> Result<Option<String>> {
    workspace.build()?;
    let mut cargo = workspace.cargo();
    cargo.args([
        "test",
        "--quiet",
        "--locked",
        "--workspace",
        "--bin",
        "glovebox",
        "documentation",
    ]);
    let (status, output) =
        command::capture_with_status(&mut cargo, "comparing the documentation with glovebox")?;
    let fault = if !status.success() {
        report::note(&output);
        "the documentation and glovebox differ, or its tests cannot be built"
    } else if output.contains("running 0 tests") {
        "glovebox has no tests named `documentation`"
    } else {
        return Ok(None);
    };
    Ok(Some(fault.to_owned()))
}

/// The arguments of `cargo ci` in a line such as `NAME=value cargo ci test  # comment`. `None` if
/// it calls something else.
fn arguments_of_cargo_ci(line: &str) -> Option<Vec<String>> {
    let words = line
        .split_whitespace()
        .take_while(|word| !word.starts_with('#'));
    let mut words = words.skip_while(|word| word.contains('='));
    (words.next()? == "cargo" && words.next()? == "ci").then(|| words.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_step_in_a_shell_block_is_a_fault() {
        let page = "cargo ci nothing\n```sh\ncargo ci test  # all\nN=1 cargo ci sim\ncargo ci tset\nls\n```\n";
        let expected = "a.md: there is no step \"tset\"; `cargo ci --help` lists them";
        assert_eq!(faults(Path::new("a.md"), page), [expected]);
    }
}
