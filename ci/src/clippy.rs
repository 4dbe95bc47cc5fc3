//! Step `clippy`: no warnings in any target, including tests and benchmarks.

use anyhow::Result;

use crate::step::Notes;
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    let mut cargo = workspace.cargo();
    cargo.args(["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]);
    workspace.select_small_server()?;
    workspace.compile(&mut cargo, "cargo clippy")?;
    Ok(Notes::new())
}
