//! `cargo ci bench`: runs the benchmarks with the container engine of the tests. It is not a check.
//!
//! Step `bench-short` runs every group with few repetitions in the debug build. A benchmark that fails is a failure of the
//! step; a missed target is not.

use anyhow::Result;

use crate::command;
use crate::report;
use crate::step::Notes;
use crate::test;
use crate::workspace::{Profile, Workspace};

/// Runs the benchmarks. Their stdout is passed through, so that `--json` can be piped.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let (engine, notes) = test::find_engine(workspace)?;
    notes.iter().for_each(|note| report::note(note));
    let mut bench = workspace.cargo();
    bench
        .args(["run", "--release", "--locked", "--package", "tests", "--bin", "bench", "--"])
        .args(arguments)
        .env(test::PROGRAM_VARIABLE, workspace.build_program(Profile::Release)?);
    test::set_engine_variables(&mut bench, engine.as_ref());
    command::pass_through(&mut bench, "running the benchmarks")
}

/// Runs the step `bench-short`.
pub(crate) fn run_short(workspace: &Workspace) -> Result<Notes> {
    let (engine, notes) = test::find_engine(workspace)?;
    let mut bench = workspace.cargo();
    bench
        .args(["run", "--quiet", "--locked", "--package", "tests", "--bin", "bench", "--", "--short"])
        .env(test::PROGRAM_VARIABLE, workspace.build_program(Profile::Debug)?);
    test::set_engine_variables(&mut bench, engine.as_ref());
    command::stream(&mut bench, "running the benchmarks in short")?;
    Ok(notes)
}
