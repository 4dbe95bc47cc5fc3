//! A server that is a program on this host.
//!
//! Its environment consists of its configured variables and those of [`HostEnvironment`], without
//! keys of Glovebox. A marker variable, which its children inherit, identifies them when the server
//! is stopped, also those that left its process group.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use secrecy::ExposeSecret as _;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::stderr_tail::StderrTail;
use super::{ConnectError, EXIT_GRACE_PERIOD};
use crate::config::Program;

/// Environment variables of every server on this host, besides its configured ones.
pub(crate) type HostEnvironment = Vec<(String, String)>;

/// Marker variable. Its value identifies one start of a server.
const MARKER_VARIABLE: &str = "GLOVEBOX_MCP_SERVER";

/// Maximum number of searches for processes. Processes may start others while they are killed.
const MAX_KILL_ROUNDS: usize = 10;

/// A started program. Killed with its children on drop.
pub(crate) struct HostProgram {
    child: Child,
    /// The marker as `NAME=VALUE`.
    marker: String,
    stderr: StderrTail,
    _stderr_task: Option<AbortOnDropHandle<()>>,
}

pub(super) fn start(
    program: &Program,
    environment: &HostEnvironment,
) -> Result<(HostProgram, ChildStdout, ChildStdin), ConnectError> {
    let failed = |source| ConnectError::Start {
        command: program.command.clone(),
        source,
    };
    let id = uuid::Uuid::now_v7().simple().to_string();
    let mut command = Command::new(&program.command);
    command
        .args(&program.args)
        .env_clear()
        .envs(environment.iter().cloned());
    command.envs(
        program
            .env
            .iter()
            .map(|(name, value)| (name, OsString::from(value.expose_secret()))),
    );
    // Not the current folder: launchers such as npx load and run files of a repository there.
    let home = environment
        .iter()
        .find(|(name, value)| name == "HOME" && Path::new(value).is_dir());
    if let Some((_, home)) = home {
        command.current_dir(home);
    }
    command
        .env(MARKER_VARIABLE, &id)
        .process_group(0)
        .kill_on_drop(true);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let stderr = StderrTail::default();
    let stderr_task = child.stderr.take().map(|mut pipe| {
        let tail = stderr.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = pipe.read(&mut chunk).await {
                tail.push(chunk.get(..length).unwrap_or_default());
            }
            tail.end();
        }))
    });
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let program = HostProgram {
        child,
        marker: format!("{MARKER_VARIABLE}={id}"),
        stderr,
        _stderr_task: stderr_task,
    };
    match (stdout, stdin) {
        (Some(stdout), Some(stdin)) => Ok((program, stdout, stdin)),
        _ => Err(failed(io::ErrorKind::BrokenPipe.into())),
    }
}

impl HostProgram {
    pub(super) async fn stderr(&self) -> String {
        self.stderr.text().await
    }

    pub(super) async fn stop(mut self) {
        // Its stdin is closed. If it does not exit, it is killed on drop.
        let _ = timeout(EXIT_GRACE_PERIOD, self.child.wait()).await;
    }
}

impl Drop for HostProgram {
    fn drop(&mut self) {
        // Not reaped yet, so the pid is still its own.
        let pid = self
            .child
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw);
        if let Some(group) = pid {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // While a process executes another program, it has no environment for a moment: one empty
        // round is not enough.
        let mut empty_rounds = 0;
        for _ in 0..MAX_KILL_ROUNDS {
            empty_rounds = if kill_marked(self.marker.as_bytes()) == 0 {
                empty_rounds + 1
            } else {
                0
            };
            if empty_rounds == 2 {
                return;
            }
        }
        tracing::warn!(
            "cannot kill all processes of an MCP server: they start faster than they are killed"
        );
    }
}

/// Kills every process whose environment contains the marker. Returns their number.
fn kill_marked(marker: &[u8]) -> usize {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| {
        // Opened before its environment is read, so that its pid cannot be reused in between.
        let Ok(process) = pidfd_open(*pid, PidfdFlags::empty()) else {
            return false;
        };
        let environment =
            std::fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == marker)
            && pidfd_send_signal(process, Signal::KILL).is_ok()
    })
    .count()
}
