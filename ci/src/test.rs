//! Step `test`: all tests, with what they need, and nothing left behind.
//!
//! Without a container engine a user's run goes on and says what it skipped; on a build machine that is a failure.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::command::{self, GLANCE};
use crate::engine::Engine;
use crate::mcp_servers;
use crate::processes::{self, Process};
use crate::step::{self, Notes};
use crate::workspace::{Profile, Workspace};

/// The program that tests start in many places.
const SERVER: &str = "action-server";

/// Where tests and benchmarks find the program `glovebox`.
pub(crate) const PROGRAM_VARIABLE: &str = "GLOVEBOX_TEST_BINARY";

/// A process that was told to end may take this long before it counts as left behind.
const GRACE: Duration = Duration::from_secs(5);

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    let before = servers()?;
    let (engine, mut notes) = engine(workspace)?;
    let mcp_servers = match mcp_servers::find(workspace) {
        Ok(folder) => Some(folder),
        Err(error) => {
            notes.extend(step::skipped("the reference MCP servers", error)?);
            None
        }
    };
    let tests = run_tests(workspace, engine.as_ref(), mcp_servers.as_deref());
    let containers = engine.as_ref().map_or(Ok(Vec::new()), Engine::containers_left);
    drop(engine);
    let processes = servers_left(&before);
    verdict([
        tests,
        containers.and_then(|left| nothing_left("containers", &left)),
        processes.and_then(|left| nothing_left("processes", &left)),
    ])?;
    Ok(notes)
}

/// All faults in one error: a failed test often is why something was left.
fn verdict(results: [Result<()>; 3]) -> Result<()> {
    let faults: Vec<String> =
        results.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    match faults.as_slice() {
        [] => Ok(()),
        faults => bail!("{}", faults.join("; ")),
    }
}

/// The engine, or none and a note that says why.
pub(crate) fn engine(workspace: &Workspace) -> Result<(Option<Engine>, Notes)> {
    let strict = step::is_strict();
    match Engine::find(workspace) {
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

/// What tests and benchmarks look at, besides what they are told by the caller's environment.
pub(crate) fn tell(command: &mut Command, engine: Option<&Engine>) {
    if let Some(engine) = engine {
        command.envs(engine.variables());
    }
}

fn run_tests(workspace: &Workspace, engine: Option<&Engine>, mcp_servers: Option<&Path>) -> Result<()> {
    let program = workspace.build_program(Profile::Debug)?; // once: each test would ask cargo again
    let mut tests = workspace.cargo();
    let nextest =
        command::capture(workspace.cargo().args(["nextest", "--version"]), "looking for nextest").is_ok();
    tests.args(if nextest { ["nextest", "run"].as_slice() } else { &["test"] });
    // Of a failure that comes once in a hundred runs only the end of a log may be left: with its words, not a runtime's
    // frames.
    tests.args(["--workspace", "--locked"]).env(PROGRAM_VARIABLE, program).env("RUST_BACKTRACE", "0");
    tests.envs(mcp_servers.map(|folder| (mcp_servers::VARIABLE, folder)));
    tell(&mut tests, engine);
    command::stream(&mut tests, "running the tests")
}

fn servers() -> Result<Vec<Process>> {
    let mut all = processes::all()?;
    all.retain(|process| process.is_version_of(SERVER));
    Ok(all)
}

fn servers_left(before: &[Process]) -> Result<Vec<String>> {
    let deadline = Instant::now() + GRACE;
    loop {
        let mut left = servers()?;
        left.retain(|process| !before.contains(process));
        if left.is_empty() || Instant::now() >= deadline {
            return Ok(left.iter().map(Process::describe).collect());
        }
        thread::sleep(GLANCE);
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
    fn a_failed_test_does_not_hide_what_was_left() {
        let left = nothing_left("containers", &["x".to_owned(), "y".to_owned()]);
        let error = verdict([Err(anyhow!("tests: 1")), left, Ok(())]).unwrap_err();
        assert_eq!(error.to_string(), "tests: 1; containers left behind: x, y");
        assert!(verdict([Ok(()), nothing_left("processes", &[]), Ok(())]).is_ok());
    }
}
