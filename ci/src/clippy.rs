//! Step `clippy`: no warnings in any target, including tests and benchmarks.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::step::Notes;
use crate::workspace::Workspace;

const ARGUMENTS: [&str; 2] = ["-D", "warnings"];

/// Makes another command that checks our crates use the results of this step: without a wrapper,
/// cargo would check all of them again. Nothing changes if clippy is not installed.
pub(crate) fn share_results(cargo: &mut Command) {
    let driver = Path::new(cargo.get_program()).with_file_name("clippy-driver");
    if driver.is_file() {
        // As `cargo clippy` sets them.
        let arguments = ARGUMENTS
            .map(|argument| format!("{argument}__CLIPPY_HACKERY__"))
            .concat();
        cargo
            .env("RUSTC_WORKSPACE_WRAPPER", driver)
            .env("CLIPPY_ARGS", arguments);
    }
}

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    let mut cargo = workspace.cargo();
    cargo
        .args(["clippy", "--workspace", "--all-targets", "--locked", "--"])
        .args(ARGUMENTS);
    workspace.select_small_server()?;
    workspace.compile(&mut cargo, "cargo clippy")?;
    Ok(Notes::new())
}
