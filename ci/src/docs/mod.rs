//! Step `docs`: checks the documentation against the repository.
//!
//! Links of Markdown files lead to files and headings of this repository. Command lines parse, and
//! the tables of the configuration are complete. The README and `.ci/run` name the same test
//! command. No file contains a path of the author's machine or the host of a package registry.
//! `cargo doc` has no warnings.

mod commands;
mod links;
mod markdown;
mod traces;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::clippy;
use crate::report;
use crate::step::Notes;
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    let files = workspace.files()?;
    let mut faults = faults_of_pages(workspace, &files)?;
    faults.extend(fault_of_test_command(workspace));
    faults.extend(faults_of_traces(workspace, &files)?);
    faults.extend(commands::fault_of_program(workspace)?);
    faults.iter().for_each(|fault| report::note(fault));
    run_cargo_doc(workspace)?;
    match faults.as_slice() {
        [] => Ok(Notes::new()),
        faults => bail!("{}", faults.join("; ")),
    }
}

fn faults_of_pages(workspace: &Workspace, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for page in files
        .iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "md"))
    {
        let text = workspace.read(page)?;
        faults.extend(links::faults(&workspace.root, page, &text));
        faults.extend(commands::faults(page, &text));
    }
    Ok(faults)
}

/// Compares the test command of the README with that of `.ci/run`. A missing file counts as one
/// without a command.
fn fault_of_test_command(workspace: &Workspace) -> Option<String> {
    let [script, readme] =
        [".ci/run", "README.md"].map(|file| workspace.read(Path::new(file)).unwrap_or_default());
    disagreement(&script, &readme)
}

/// The script must end with `exec COMMAND`, and a line of the README must be COMMAND. `None` if
/// they agree.
fn disagreement(script: &str, readme: &str) -> Option<String> {
    let last = script
        .lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty())
        .unwrap_or_default();
    let Some(command) = last.strip_prefix("exec ") else {
        return Some(".ci/run does not end with `exec` and the test command".to_owned());
    };
    let is_documented = readme
        .lines()
        .any(|line| line.trim().strip_prefix(command).is_some_and(is_comment));
    (!is_documented)
        .then(|| format!("README.md has no line `{command}`, which is what .ci/run runs"))
}

fn is_comment(rest: &str) -> bool {
    rest.trim().is_empty() || rest.trim_start().starts_with('#')
}

fn faults_of_traces(workspace: &Workspace, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| traces::is_checked(file)) {
        let bytes = std::fs::read(workspace.root.join(file))
            .with_context(|| format!("cannot read {}", file.display()))?;
        if let Some(trace) = traces::find(&String::from_utf8_lossy(&bytes)) {
            faults.push(format!("{}: contains {trace}", file.display()));
        }
    }
    Ok(faults)
}

fn run_cargo_doc(workspace: &Workspace) -> Result<()> {
    let mut cargo = workspace.cargo();
    cargo
        .args(["doc", "--workspace", "--no-deps", "--locked"])
        .env("RUSTDOCFLAGS", "-D warnings");
    clippy::share_results(&mut cargo);
    workspace.compile(&mut cargo, "cargo doc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_must_contain_the_command_of_the_script() {
        let script = "#!/bin/sh\nset -e\nexec cargo ci\n\n";
        assert_eq!(
            disagreement(script, "Test with\n\n    cargo ci   # all of it\n"),
            None
        );
        let fault = disagreement(script, "Test with `make`, not\ncargo circus\n").unwrap();
        assert_eq!(
            fault,
            "README.md has no line `cargo ci`, which is what .ci/run runs"
        );
        assert!(disagreement("cargo ci\necho done", "cargo ci").is_some());
    }
}
