//! A server that is a program on this host: started, listened to, ended with all that came of it.
//!
//! It gets what it is configured with and the few variables that [`HostEnvironment`] holds: no key of ours. Its children
//! carry a mark in their environment, by which they are found at its end also when they left its process group.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use secrecy::ExposeSecret as _;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::ConnectError;
use super::tail::Tail;
use crate::config::Program;

/// What a program on this host finds in its environment, beside what it is configured with.
pub(crate) type HostEnvironment = Vec<(String, String)>;

/// The variable that marks what came of one start.
const MARK: &str = "GLOVEBOX_MCP_SERVER";

/// How long a program may take to end when its input has ended.
const GRACE: Duration = Duration::from_secs(2);

/// How often processes are looked for that were started while others were killed.
const MOST_ROUNDS: usize = 10;

pub(crate) struct HostProgram {
    child: Child,
    /// The marking variable, as it stands in an environment.
    mark: String,
    stderr: Tail,
    _listening: Option<AbortOnDropHandle<()>>,
}

pub(super) fn start(
    program: &Program,
    environment: &HostEnvironment,
) -> Result<(HostProgram, ChildStdout, ChildStdin), ConnectError> {
    let failed = |source| ConnectError::Start { command: program.command.clone(), source };
    let id = uuid::Uuid::now_v7().simple().to_string();
    let mut command = Command::new(&program.command);
    command.args(&program.args).env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
    command.envs(program.env.iter().map(|(name, value)| (name, OsString::from(value.expose_secret()))));
    // Not the current folder: launchers such as npx run and read what a repository has there.
    let home = environment.iter().find(|(name, value)| name == "HOME" && Path::new(value).is_dir());
    if let Some((_, home)) = home {
        command.current_dir(home);
    }
    command.env(MARK, &id).process_group(0).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let stderr = Tail::default();
    let listening = child.stderr.take().map(|mut pipe| {
        let tail = stderr.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = pipe.read(&mut piece).await {
                tail.push(piece.get(..length).unwrap_or_default());
            }
            tail.end();
        }))
    });
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let program = HostProgram { child, mark: format!("{MARK}={id}"), stderr, _listening: listening };
    match (stdout, stdin) {
        (Some(reads), Some(writes)) => Ok((program, reads, writes)),
        _ => Err(failed(io::ErrorKind::BrokenPipe.into())),
    }
}

impl HostProgram {
    pub(super) async fn stderr(&self) -> String {
        self.stderr.text().await
    }

    pub(super) async fn end(mut self) {
        // Its input has ended by now. One that does not heed that is killed when this is dropped.
        let _ = timeout(GRACE, self.child.wait()).await;
    }
}

impl Drop for HostProgram {
    fn drop(&mut self) {
        // Not waited for yet, so the number is its own.
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(group) = pid {
            let _ = kill_process_group(group, Signal::KILL);
        }
        for _ in 0..MOST_ROUNDS {
            if kill_marked(self.mark.as_bytes()) == 0 {
                return;
            }
        }
        tracing::warn!("a tool server's processes start faster than they are killed");
    }
}

/// Kills every process with this variable in its environment; how many that were.
fn kill_marked(mark: &[u8]) -> usize {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| {
        // Held before it is looked at: its number cannot become another's in between.
        let Ok(process) = pidfd_open(*pid, PidfdFlags::empty()) else { return false };
        let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark)
            && pidfd_send_signal(process, Signal::KILL).is_ok()
    })
    .count()
}
