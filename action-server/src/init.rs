//! The supervisor: a single-threaded process that starts the server, forwards signals to it, and
//! kills the processes that the server has left behind. It also reaps orphans, as it must if it is
//! PID 1 of a container.
//!
//! It is a process of its own for two reasons. The server may be killed, and another process must
//! clean up. And PID 1 adopts all orphans of the container: a process that waits for any child
//! would take the exit codes of children that other parts of it wait for. It never reads the key,
//! because the server inherits standard input. It exits after the server, with its exit code. If it
//! is killed itself, the kernel sends SIGTERM to the server.
//!
//! It listens on the server's unix socket and passes the socket on. The kernel reports it as the
//! peer of each connection. Clients compare that with the pid that they know, so that no other
//! process can impersonate the server.

use std::os::fd::OwnedFd;
use std::process::{ExitCode, Stdio};

use anyhow::Context as _;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, alarm, getpid, setsid};

use crate::config::{self, ListenAddress, ServeConfig};
use crate::os::process_table;
use crate::{environment, server, stdio, this_program};

/// The server shuts down in less time, unless it hangs. Then it is killed.
const SHUTDOWN_GRACE_PERIOD_SECS: u32 = 2;

/// Maximum time to wait for killed processes. A process in uninterruptible I/O may take longer.
const KILL_TIMEOUT_SECS: u32 = 1;

/// Runs the server until it has exited.
pub(crate) fn run(config: &ServeConfig) -> anyhow::Result<ExitCode> {
    if config.is_detached {
        setsid().context("cannot leave the launcher's session")?;
    }
    this_program::set_process_name()?;
    prctl::set_dumpable(false).context("cannot protect the supervisor's memory")?;
    prctl::set_child_subreaper(true).context("cannot adopt orphans")?;
    let socket = match &config.address {
        ListenAddress::Unix(path) => Stdio::from(OwnedFd::from(server::bind_unix(path)?)),
        ListenAddress::Tcp(_) => Stdio::null(),
    };
    let signals = watched_signals();
    // Before the server is started, so that its exit cannot be missed. The server unblocks them
    // again.
    signals.thread_block().context("cannot block signals")?;
    let server = start_server(socket)?;
    stdio::release_stdin_and_stdout()?;
    if config.is_detached {
        stdio::release_stderr()?;
    }
    let code = wait_for_exit(server, signals)?;
    kill_remaining(signals)?;
    Ok(code)
}

fn watched_signals() -> SigSet {
    [
        Signal::SIGCHLD,
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGALRM,
    ]
    .into_iter()
    .collect()
}

/// Starts the server and passes on the only descriptor of the socket, which is closed when the
/// server exits.
fn start_server(socket: Stdio) -> anyhow::Result<Pid> {
    let mut server = this_program::command();
    server
        .args(config::arguments_with(&[
            "--supervisor",
            &getpid().to_string(),
        ]))
        .stdout(socket)
        .envs(environment::for_the_server());
    let child = server.spawn().context("cannot start the server")?;
    Ok(Pid::from_raw(
        i32::try_from(child.id()).context("cannot read the server's pid")?,
    ))
}

/// Waits for the exit of the server and returns its exit code.
fn wait_for_exit(server: Pid, signals: SigSet) -> anyhow::Result<ExitCode> {
    loop {
        match signals.wait().context("cannot wait for a signal")? {
            Signal::SIGCHLD => {
                if let Some(code) = reap(Some(server)) {
                    return Ok(code);
                }
            }
            Signal::SIGALRM => send(server, Signal::SIGKILL),
            _ => {
                send(server, Signal::SIGTERM);
                alarm::set(SHUTDOWN_GRACE_PERIOD_SECS);
            }
        }
    }
}

/// Kills the processes that the server has left. They are children of the supervisor, or become its
/// children when their parents have exited.
fn kill_remaining(signals: SigSet) -> anyhow::Result<()> {
    alarm::set(KILL_TIMEOUT_SECS);
    loop {
        let remaining = process_table::children_of(getpid().as_raw());
        if remaining.is_empty() {
            return Ok(());
        }
        remaining
            .into_iter()
            .for_each(|child| send(Pid::from_raw(child), Signal::SIGKILL));
        if signals
            .wait()
            .context("cannot wait for the remaining processes")?
            == Signal::SIGALRM
        {
            return Ok(());
        }
        reap(None);
    }
}

/// Reaps all children that have exited. Returns the server's exit code if it is among them.
fn reap(server: Option<Pid>) -> Option<ExitCode> {
    let mut code = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, exit)) if Some(pid) == server => {
                code = Some(ExitCode::from(u8::try_from(exit).unwrap_or(u8::MAX)));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if Some(pid) == server => {
                eprintln!("action-server: the server was terminated by {signal}");
                code = Some(ExitCode::from(
                    u8::try_from(128 + signal as i32).unwrap_or(u8::MAX),
                ));
            }
            Ok(WaitStatus::StillAlive) => return code,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return code,
        }
    }
}

/// Sends a signal to a process that may have exited.
fn send(pid: Pid, signal: Signal) {
    _ = kill(pid, signal);
}
