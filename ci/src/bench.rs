//! `cargo ci bench`: runs the benchmarks with the container engine of the tests. It is not a check.
//!
//! Step `bench-short` runs every group with few repetitions in the debug build. A benchmark that
//! fails is a failure of the step; a missed target is not.

use std::process::Command;

use anyhow::Result;

use crate::command;
use crate::report;
use crate::step::Notes;
use crate::test;
use crate::workspace::Workspace;

/// Runs the benchmarks. Their stdout is passed through, so that `--json` can be piped.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let mut build = workspace.cargo();
    build.args([
        "build",
        "--release",
        "--locked",
        "--bin",
        "glovebox",
        "--bin",
        "bench",
    ]);
    workspace.compile(&mut build, "building glovebox and the benchmarks")?;
    let (engine, notes) = test::find_engine(workspace)?;
    notes.iter().for_each(|note| report::note(note));
    let mut bench = Command::new(workspace.release_program("bench"));
    bench.args(arguments).env(
        test::PROGRAM_VARIABLE,
        workspace.release_program("glovebox"),
    );
    test::set_engine_variables(&mut bench, engine.as_ref());
    command::pass_through(&mut bench, "running the benchmarks")
}

/// Runs the step `bench-short`.
pub(crate) fn run_short(workspace: &Workspace) -> Result<Notes> {
    workspace.build()?;
    let (engine, notes) = test::find_engine(workspace)?;
    let mut bench = Command::new(workspace.program("bench"));
    bench
        .arg("--short")
        .env(test::PROGRAM_VARIABLE, workspace.program("glovebox"));
    test::set_engine_variables(&mut bench, engine.as_ref());
    command::stream(&mut bench, "running the benchmarks in short")?;
    Ok(notes)
}
