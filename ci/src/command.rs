//! Child processes that never outlive this program.
//!
//! Each runs in its own process group with stdin closed. ^C in the terminal therefore reaches only
//! this program, which terminates the groups in the required order. Their stdout goes to our
//! stderr, because our stdout is the report.

use std::io::{Read, stderr};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::interrupt;

/// Interval between two checks while waiting for a process.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time between SIGTERM and SIGKILL. Longer than the ten seconds that nextest grants its tests:
/// killed earlier, nextest would leave them running.
const TERMINATION_GRACE_PERIOD: Duration = Duration::from_secs(15);

/// Runs `command` to completion with its stdout redirected to our stderr.
pub(crate) fn stream(command: &mut Command, operation: &str) -> Result<()> {
    command.stdout(Stdio::from(stderr()));
    pass_through(command, operation)
}

/// Runs `command` to completion with our stdout, for a program whose output is the result.
pub(crate) fn pass_through(command: &mut Command, operation: &str) -> Result<()> {
    interrupt::check()?;
    let mut child = spawn(command, operation)?;
    let status =
        wait(&mut child, &StopCondition::Interrupted).with_context(|| operation.to_owned())?;
    succeeded(status, operation, "")
}

/// Runs `command` to completion and returns its stdout. An error contains its stderr.
pub(crate) fn capture(command: &mut Command, operation: &str) -> Result<String> {
    interrupt::check()?;
    collect(command, operation, StopCondition::Interrupted)
}

/// Runs `command` to completion and returns its exit status and stdout. For a program that reports
/// findings on stdout and exits with an error code. Its stderr is inherited.
pub(crate) fn capture_with_status(
    command: &mut Command,
    operation: &str,
) -> Result<(ExitStatus, String)> {
    interrupt::check()?;
    let mut child = spawn(command.stdout(Stdio::piped()), operation)?;
    let out = read_in_background(child.stdout.take());
    let status =
        wait(&mut child, &StopCondition::Interrupted).with_context(|| operation.to_owned())?;
    Ok((status, into_text(out)))
}

/// Runs `command` like `capture`, but ignores ^C and stops after `timeout`. For cleanup.
pub(crate) fn capture_with_timeout(
    command: &mut Command,
    operation: &str,
    timeout: Duration,
) -> Result<String> {
    collect(
        command,
        operation,
        StopCondition::Instant(Instant::now() + timeout),
    )
}

/// Starts `command` in its own process group. The caller ends it with `terminate`.
pub(crate) fn spawn(command: &mut Command, operation: &str) -> Result<Child> {
    command.stdin(Stdio::null()).process_group(0);
    let program = command.get_program().to_owned();
    command
        .spawn()
        .with_context(|| format!("{operation}: cannot start {}", program.display()))
}

/// Terminates a child and its process group, and kills them after the grace period.
pub(crate) fn terminate(child: &mut Child) -> Result<ExitStatus> {
    signal_group(child, Signal::SIGTERM);
    let deadline = Instant::now() + TERMINATION_GRACE_PERIOD;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        thread::sleep(POLL_INTERVAL);
    }
    signal_group(child, Signal::SIGKILL);
    child.wait().context("cannot wait for a killed child")
}

enum StopCondition {
    Interrupted,
    Instant(Instant),
}

impl StopCondition {
    fn is_met(&self) -> Option<&'static str> {
        match self {
            Self::Interrupted => interrupt::is_requested().then_some("interrupted"),
            Self::Instant(deadline) => (Instant::now() >= *deadline).then_some("timed out"),
        }
    }
}

fn collect(command: &mut Command, operation: &str, until: StopCondition) -> Result<String> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(command, operation)?;
    let out = read_in_background(child.stdout.take());
    let err = read_in_background(child.stderr.take());
    let status = wait(&mut child, &until).with_context(|| operation.to_owned())?;
    let (out, err) = (into_text(out), into_text(err));
    succeeded(status, operation, &err)?;
    Ok(out)
}

/// Reads a pipe while the child runs. Otherwise the child would block on a full pipe.
fn read_in_background(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // The output before a read error is still useful.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn into_text(reader: JoinHandle<Vec<u8>>) -> String {
    String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
}

fn wait(child: &mut Child, until: &StopCondition) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if let Some(why) = until.is_met() {
            terminate(child)?;
            bail!("{why}");
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn signal_group(child: &Child, signal: Signal) {
    let Ok(group) = i32::try_from(child.id()) else {
        return;
    };
    // Fails only if the group has already exited.
    let _ = killpg(Pid::from_raw(group), signal);
}

fn succeeded(status: ExitStatus, operation: &str, stderr: &str) -> Result<()> {
    match (status.success(), stderr.trim()) {
        (true, _) => Ok(()),
        (false, "") => bail!("{operation}: {status}"),
        (false, stderr) => bail!("{operation}: {status}\n{stderr}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn captured_output_is_stdout() {
        assert_eq!(
            capture(&mut shell("echo out; echo err >&2"), "echoing").unwrap(),
            "out\n"
        );
    }

    #[test]
    fn error_contains_operation_and_stderr_when_program_fails() {
        let error = capture(&mut shell("echo no such thing >&2; exit 3"), "looking").unwrap_err();
        assert_eq!(error.to_string(), "looking: exit status: 3\nno such thing");
    }

    #[test]
    fn status_and_stdout_are_returned_when_program_fails() {
        let (status, found) =
            capture_with_status(&mut shell("echo a fault; exit 1"), "judging").unwrap();
        assert_eq!((status.code(), found.as_str()), (Some(1), "a fault\n"));
    }

    #[test]
    fn program_and_its_children_are_terminated_on_timeout() {
        let error =
            capture_with_timeout(&mut shell("sleep 60 & sleep 60"), "waiting", Duration::ZERO)
                .unwrap_err();
        assert_eq!(format!("{error:#}"), "waiting: timed out");
    }
}
