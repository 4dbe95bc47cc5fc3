//! Running other programs, so that none outlives us.
//!
//! Each runs in a process group of its own with stdin closed: ^C in the terminal reaches only us, and we end the whole
//! group, in the order we need. Their stdout goes to our stderr, because our stdout is the report.

use std::io::{Read, stderr};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::interrupt;

/// How often a child, a daemon or a left-over is looked at while we wait for it.
pub(crate) const GLANCE: Duration = Duration::from_millis(20);

/// Longer than the ten seconds nextest gives its own tests to end before it kills them; killed before that, it would
/// leave them running.
const GRACE: Duration = Duration::from_secs(15);

/// Runs `command` to its end with its output passed on to our stderr.
pub(crate) fn stream(command: &mut Command, doing: &str) -> Result<()> {
    command.stdout(Stdio::from(stderr()));
    pass_through(command, doing)
}

/// Like `stream`, but the command's stdout is ours: for a program whose output is the result.
pub(crate) fn pass_through(command: &mut Command, doing: &str) -> Result<()> {
    interrupt::check()?;
    let mut child = spawn(command, doing)?;
    let status = wait(&mut child, Until::Interrupted).with_context(|| doing.to_owned())?;
    succeeded(status, doing, "")
}

/// Runs `command` to its end and returns its stdout; its stderr is in the error if it fails.
pub(crate) fn capture(command: &mut Command, doing: &str) -> Result<String> {
    interrupt::check()?;
    collect(command, doing, Until::Interrupted)
}

/// Runs `command` to its end, and returns how it ended and its stdout: for one that tells there what it found. Its stderr
/// is ours.
pub(crate) fn told(command: &mut Command, doing: &str) -> Result<(ExitStatus, String)> {
    interrupt::check()?;
    let mut child = spawn(command.stdout(Stdio::piped()), doing)?;
    let out = reader(child.stdout.take());
    let status = wait(&mut child, Until::Interrupted).with_context(|| doing.to_owned())?;
    Ok((status, text_of(out)))
}

/// Like `capture`, for cleaning up: goes on after ^C, but not for longer than `limit`.
pub(crate) fn finish(command: &mut Command, doing: &str, limit: Duration) -> Result<String> {
    collect(command, doing, Until::Instant(Instant::now() + limit))
}

/// Starts `command` in its own process group and leaves it running: the caller ends it with `end`.
pub(crate) fn spawn(command: &mut Command, doing: &str) -> Result<Child> {
    command.stdin(Stdio::null()).process_group(0);
    let program = command.get_program().to_owned();
    command.spawn().with_context(|| format!("{doing}: starting {}", program.display()))
}

/// Ends a child and its process group: asked first, killed after `GRACE`.
pub(crate) fn end(child: &mut Child) -> Result<ExitStatus> {
    signal_group(child, Signal::SIGTERM);
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        thread::sleep(GLANCE);
    }
    signal_group(child, Signal::SIGKILL);
    child.wait().context("waiting for a killed child")
}

enum Until {
    Interrupted,
    Instant(Instant),
}

impl Until {
    fn reached(&self) -> Option<&'static str> {
        match self {
            Self::Interrupted => interrupt::requested().then_some("interrupted"),
            Self::Instant(deadline) => (Instant::now() >= *deadline).then_some("took too long"),
        }
    }
}

fn collect(command: &mut Command, doing: &str, until: Until) -> Result<String> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(command, doing)?;
    let out = reader(child.stdout.take());
    let err = reader(child.stderr.take());
    let status = wait(&mut child, until).with_context(|| doing.to_owned())?;
    let (out, err) = (text_of(out), text_of(err));
    succeeded(status, doing, &err)?;
    Ok(out)
}

/// A pipe is read while the child runs, or the child would stop at a full one.
fn reader(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read until the error is still worth showing.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn text_of(reader: JoinHandle<Vec<u8>>) -> String {
    String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
}

#[expect(clippy::needless_pass_by_value, reason = "a wait has one ending condition, made for it")]
fn wait(child: &mut Child, until: Until) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if let Some(why) = until.reached() {
            end(child)?;
            bail!("{why}");
        }
        thread::sleep(GLANCE);
    }
}

fn signal_group(child: &Child, signal: Signal) {
    let Ok(group) = i32::try_from(child.id()) else { return };
    // Fails only when the group has ended, which is what we want.
    let _ = killpg(Pid::from_raw(group), signal);
}

fn succeeded(status: ExitStatus, doing: &str, stderr: &str) -> Result<()> {
    match (status.success(), stderr.trim()) {
        (true, _) => Ok(()),
        (false, "") => bail!("{doing}: {status}"),
        (false, stderr) => bail!("{doing}: {status}\n{stderr}"),
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
        assert_eq!(capture(&mut shell("echo out; echo err >&2"), "echoing").unwrap(), "out\n");
    }

    #[test]
    fn a_failure_says_what_was_done_and_what_the_program_said() {
        let error = capture(&mut shell("echo no such thing >&2; exit 3"), "looking").unwrap_err();
        assert_eq!(error.to_string(), "looking: exit status: 3\nno such thing");
    }

    #[test]
    fn a_verdict_is_no_error() {
        let (status, found) = told(&mut shell("echo a fault; exit 1"), "judging").unwrap();
        assert_eq!((status.code(), found.as_str()), (Some(1), "a fault\n"));
    }

    #[test]
    fn a_program_that_takes_too_long_is_ended_with_its_children() {
        let error = finish(&mut shell("sleep 60 & sleep 60"), "waiting", Duration::ZERO).unwrap_err();
        assert_eq!(format!("{error:#}"), "waiting: took too long");
    }
}
