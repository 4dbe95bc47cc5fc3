//! `cargo ci bench`: the benchmarks, with the engine that tests have. Not a check: figures are for reading.
//!
//! Step `bench-short` runs every group with few repetitions in the debug build that the tests have made: a group that fails
//! there fails the step, an aim that is missed does not.

use anyhow::Result;

use crate::command;
use crate::report;
use crate::step::Notes;
use crate::test;
use crate::workspace::{Profile, Workspace};

/// The benchmarks' output is ours, so that `--json` can be piped.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let (engine, notes) = test::engine(workspace)?;
    notes.iter().for_each(|note| report::note(note));
    let mut bench = workspace.cargo();
    bench
        .args(["run", "--release", "--locked", "--package", "tests", "--bin", "bench", "--"])
        .args(arguments)
        .env(test::PROGRAM_VARIABLE, workspace.build_program(Profile::Release)?);
    test::tell(&mut bench, engine.as_ref());
    command::pass_through(&mut bench, "running the benchmarks")
}

/// The step.
pub(crate) fn run_short(workspace: &Workspace) -> Result<Notes> {
    let (engine, notes) = test::engine(workspace)?;
    let mut bench = workspace.cargo();
    bench
        .args(["run", "--quiet", "--locked", "--package", "tests", "--bin", "bench", "--", "--short"])
        .env(test::PROGRAM_VARIABLE, workspace.build_program(Profile::Debug)?);
    test::tell(&mut bench, engine.as_ref());
    command::stream(&mut bench, "running the benchmarks in short")?;
    Ok(notes)
}
