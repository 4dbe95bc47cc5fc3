//! Step `format`: the code is as `cargo fmt` would write it. Never rewrites anything.

use anyhow::Result;

use crate::command;
use crate::step::Notes;
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    command::stream(workspace.cargo().args(["fmt", "--all", "--check"]), "cargo fmt --check")?;
    Ok(Notes::new())
}
