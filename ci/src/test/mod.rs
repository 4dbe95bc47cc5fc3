//! Step `test`: runs all tests, and fails if they leave containers or processes behind.
//!
//! Without a container engine the tests that need one are skipped with a note. With `CI=true` that
//! is a failure.

pub(crate) mod packages;
mod results;
mod services;
mod skipped;

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::command::{self, POLL_INTERVAL};
use crate::engine::ContainerEngine;
use crate::processes::{self, ProcessEntry};
use crate::step::{self, Notes};
use crate::workspace::Workspace;
use results::TestResults;
use services::Services;

/// Name of the program that tests must not leave running.
const SERVER: &str = "action-server";

/// Variable with the path of `glovebox`, for tests and benchmarks.
pub(crate) const PROGRAM_VARIABLE: &str = "GLOVEBOX_TEST_BINARY";

/// Tests that run concurrently on each core. Most of them wait for containers, programs and
/// timeouts: with one for each core, the cores are idle for two fifths of the time.
const TESTS_PER_CORE: usize = 2;

/// Time for terminated processes to exit before they count as left behind.
const EXIT_GRACE_PERIOD: Duration = Duration::from_secs(5);

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    workspace.build()?;
    let before = servers()?;
    let (engine, mut notes) = find_engine(workspace)?;
    let packages = match packages::install(&workspace.cache()?) {
        Ok(folder) => Some(folder),
        Err(error) => {
            notes.extend(step::skipped("the reference MCP servers", error)?);
            None
        }
    };
    let tests = run_tests(workspace, engine.as_ref(), packages.as_deref());
    let containers = engine
        .as_ref()
        .map_or(Ok(Vec::new()), ContainerEngine::remaining_containers);
    drop(engine);
    let processes = servers_left(&before);
    let (tests, results) = match tests {
        Ok(results) => (Ok(()), results),
        Err(error) => (Err(error), Notes::new()),
    };
    combine_failures([
        tests,
        containers.and_then(|left| nothing_left("containers", &left)),
        processes.and_then(|left| nothing_left("processes", &left)),
    ])?;
    notes.extend(results);
    Ok(notes)
}

/// Combines all failures into one error: a failed test often explains what was left behind.
fn combine_failures(results: [Result<()>; 3]) -> Result<()> {
    let faults: Vec<String> = results
        .into_iter()
        .filter_map(Result::err)
        .map(|error| format!("{error:#}"))
        .collect();
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

/// Runs the tests. The notes have their number, the skipped suites and slow tests.
fn run_tests(
    workspace: &Workspace,
    engine: Option<&ContainerEngine>,
    packages: Option<&Path>,
) -> Result<Notes> {
    let mut tests = workspace.cargo();
    let has_nextest = command::capture(
        workspace.cargo().args(["nextest", "--version"]),
        "looking for nextest",
    )
    .is_ok();
    if has_nextest {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        tests.args([
            "nextest",
            "run",
            "--test-threads",
            &(cores * TESTS_PER_CORE).to_string(),
        ]);
    } else {
        tests.arg("test");
    }
    let report = workspace.target.join("nextest/default/junit.xml");
    let skipped = workspace.cache()?.join("skipped-tests");
    for file in [&report, &skipped] {
        remove(file)?;
    }
    // Backtraces are off, because the end of a log may be all that is kept of a rare failure.
    tests
        .args(["--workspace", "--locked"])
        .env(PROGRAM_VARIABLE, workspace.program("glovebox"))
        .env(skipped::LIST_VARIABLE, &skipped)
        .env("RUST_BACKTRACE", "0");
    let services = Services::start(&workspace.program("services"), packages)?;
    tests.envs(services.variables().iter().cloned());
    tests.envs(packages.map(|folder| (packages::VARIABLE, folder)));
    set_engine_variables(&mut tests, engine);
    command::stream(&mut tests, "running the tests")?;
    let mut notes = Notes::new();
    if has_nextest {
        notes.extend(TestResults::read(&report)?.notes());
    }
    if skipped.exists() {
        let list = fs::read_to_string(&skipped).context("cannot read the list of skipped tests")?;
        notes.extend(skipped::notes(&list));
    }
    Ok(notes)
}

/// Removes a file of an earlier run, if there is one.
fn remove(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", file.display()))
        }
        _ => Ok(()),
    }
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
