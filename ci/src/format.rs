//! Step `format`: checks the output of `cargo fmt` the length of test names and the width of
//! comments. Never changes a file.

use anyhow::Result;

use crate::command;
use crate::comment_width;
use crate::step::Notes;
use crate::test_names;
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    command::stream(
        workspace.cargo().args(["fmt", "--all", "--check"]),
        "cargo fmt --check",
    )?;
    test_names::check(workspace)?;
    comment_width::check(workspace)?;
    Ok(Notes::new())
}
