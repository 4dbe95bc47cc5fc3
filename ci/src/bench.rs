//! `cargo ci bench`: the benchmarks, with the engine that tests have. Not a check: figures are for reading.

use anyhow::Result;

use crate::command;
use crate::report;
use crate::test;
use crate::workspace::Workspace;

/// The benchmarks' output is ours, so that `--json` can be piped.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let (engine, notes) = test::engine(workspace)?;
    notes.iter().for_each(|note| report::note(note));
    let mut bench = workspace.cargo();
    bench
        .args(["run", "--release", "--locked", "--package", "tests", "--bin", "bench", "--"])
        .args(arguments);
    test::tell(&mut bench, engine.as_ref());
    command::pass_through(&mut bench, "running the benchmarks")
}
