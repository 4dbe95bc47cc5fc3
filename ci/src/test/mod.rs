//! Step `test`: runs all tests, and fails if they leave containers or processes behind.
//!
//! Without a container engine the tests that need one are skipped with a note. With `CI=true` that is a failure.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::command::{self, POLL_INTERVAL};
use crate::engine::ContainerEngine;
use crate::processes::{self, ProcessEntry};
use crate::step::{self, Notes};
use crate::test_packages;
use crate::workspace::{Profile, Workspace};

/// Name of the program that tests must not leave running.
const SERVER: &str = "action-server";

/// Variable with the path of `glovebox`, for tests and benchmarks.
pub(crate) const PROGRAM_VARIABLE: &str = "GLOVEBOX_TEST_BINARY";

/// Time for terminated processes to exit before they count as left behind.
const EXIT_GRACE_PERIOD: Duration = Duration::from_secs(5);

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    let before = servers()?;
    let (engine, mut notes) = find_engine(workspace)?;
    let packages = match test_packages::install(workspace) {
        Ok(folder) => Some(folder),
        Err(error) => {
            notes.extend(step::skipped("the reference MCP servers", error)?);
            None
        }
    };
    let tests = run_tests(workspace, engine.as_ref(), packages.as_deref());
    let containers = engine.as_ref().map_or(Ok(Vec::new()), ContainerEngine::remaining_containers);
    drop(engine);
    let processes = servers_left(&before);
    combine_failures([
        tests,
        containers.and_then(|left| nothing_left("containers", &left)),
        processes.and_then(|left| nothing_left("processes", &left)),
    ])?;
    Ok(notes)
}

/// Combines all failures into one error: a failed test often explains what was left behind.
fn combine_failures(results: [Result<()>; 3]) -> Result<()> {
    let faults: Vec<String> =
        results.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    match faults.as_slice() {
        [] => Ok(()),
        faults => bail!("{}", faults.join("; ")),
    }
}

/// Returns the container engine. `None`, with a note that gives the cause, if there is none.
pub(crate) fn find_engine(workspace: &Workspace) -> Result<(Option<ContainerEngine>, Notes)> {
    let strict = step::is_strict();
    match ContainerEngine::find(workspace) {
        Ok(engine) => {
            let notes = engine.missing_images().to_vec();
            if strict && !notes.is_empty() {
                bail!("{}", notes.join("; "));
            }
            Ok((Some(engine), notes))
        }
        Err(error) => Ok((None, step::skipped("the Docker backend", error)?)),
    }
}

/// Sets the variables by which tests and benchmarks find the engine.
pub(crate) fn set_engine_variables(command: &mut Command, engine: Option<&ContainerEngine>) {
    if let Some(engine) = engine {
        command.envs(engine.variables());
    }
}

fn run_tests(workspace: &Workspace, engine: Option<&ContainerEngine>, packages: Option<&Path>) -> Result<()> {
    let program = workspace.build_program(Profile::Debug)?; // once: otherwise each test would invoke cargo
    let mut tests = workspace.cargo();
    let nextest =
        command::capture(workspace.cargo().args(["nextest", "--version"]), "looking for nextest").is_ok();
    tests.args(if nextest { ["nextest", "run"].as_slice() } else { &["test"] });
    // Backtraces are off, because the end of a log may be all that is kept of a rare failure.
    tests.args(["--workspace", "--locked"]).env(PROGRAM_VARIABLE, program).env("RUST_BACKTRACE", "0");
    tests.envs(packages.map(|folder| (test_packages::VARIABLE, folder)));
    set_engine_variables(&mut tests, engine);
    command::stream(&mut tests, "running the tests")
}

fn servers() -> Result<Vec<ProcessEntry>> {
    let mut all = processes::list()?;
    all.retain(|process| process.is_version_of(SERVER));
    Ok(all)
}

fn servers_left(before: &[ProcessEntry]) -> Result<Vec<String>> {
    let deadline = Instant::now() + EXIT_GRACE_PERIOD;
    loop {
        let mut left = servers()?;
        left.retain(|process| !before.contains(process));
        if left.is_empty() || Instant::now() >= deadline {
            return Ok(left.iter().map(ProcessEntry::describe).collect());
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn nothing_left(what: &str, left: &[String]) -> Result<()> {
    if !left.is_empty() {
        bail!("{what} left behind: {}", left.join(", "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn all_failures_are_reported_when_several_occur() {
        let left = nothing_left("containers", &["x".to_owned(), "y".to_owned()]);
        let error = combine_failures([Err(anyhow!("tests: 1")), left, Ok(())]).unwrap_err();
        assert_eq!(error.to_string(), "tests: 1; containers left behind: x, y");
        assert!(combine_failures([Ok(()), nothing_left("processes", &[]), Ok(())]).is_ok());
    }
}
