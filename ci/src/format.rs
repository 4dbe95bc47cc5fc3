//! Step `format`: checks the output of `cargo fmt` and the length of test names. Never changes a file.

use anyhow::Result;

use crate::command;
use crate::step::Notes;
use crate::test_names;
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    command::stream(workspace.cargo().args(["fmt", "--all", "--check"]), "cargo fmt --check")?;
    test_names::check(workspace)?;
    Ok(Notes::new())
}
