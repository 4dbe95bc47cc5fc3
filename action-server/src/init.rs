//! The supervisor: a process without threads that starts the server, passes signals on to it, and ends what the server
//! left behind. As PID 1 of a container it buries the container's orphans; it is the same when it is not.
//!
//! It is not part of the server, because only somebody else can clean up after a server that was killed, and because
//! PID 1 gets orphans from everywhere: a process that waits for any child takes exit codes from those parts of it that
//! wait for their own. It never reads the key: standard input goes to the server. It ends when the server has ended,
//! with its code; when it is killed itself, the server gets SIGTERM from the kernel.
//!
//! It listens on the server's unix socket and passes the socket on. The kernel reports it as the peer of each connection, and
//! clients compare that with the process that they know: no process that runs here can take its place.

use std::os::fd::OwnedFd;
use std::process::{ExitCode, Stdio};

use anyhow::Context as _;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, alarm, getpid, setsid};

use crate::children;
use crate::config::{self, Address, ServeConfig};
use crate::{environment, server, stdio, this_program};

/// The server is done in less; then it hangs and is killed.
const GRACE_SECONDS: u32 = 2;

/// For processes that cannot be killed at once, as those that wait for a dead disk.
const SWEEP_SECONDS: u32 = 1;

/// Runs the server to its end.
pub(crate) fn run(config: &ServeConfig) -> anyhow::Result<ExitCode> {
    if config.is_detached {
        setsid().context("leaving the launcher's session")?;
    }
    this_program::take_name()?;
    prctl::set_dumpable(false).context("hiding the supervisor's memory")?;
    prctl::set_child_subreaper(true).context("adopting the orphans")?;
    let socket = match &config.address {
        Address::Unix(path) => Stdio::from(OwnedFd::from(server::bind_unix(path)?)),
        Address::Tcp(_) => Stdio::null(),
    };
    let signals = watched_signals();
    // Before the server exists, so that its end cannot be missed. The server unblocks them again.
    signals.thread_block().context("blocking signals")?;
    let server = start_server(socket)?;
    stdio::leave_stdin_and_stdout()?;
    if config.is_detached {
        stdio::leave_stderr()?;
    }
    let code = wait_for(server, signals)?;
    end_the_rest(signals)?;
    Ok(code)
}

fn watched_signals() -> SigSet {
    [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGALRM].into_iter().collect()
}

/// The server gets the only handle on the socket, which closes with it.
fn start_server(socket: Stdio) -> anyhow::Result<Pid> {
    let mut server = this_program::again();
    server
        .args(config::arguments_with(&["--supervisor", &getpid().to_string()]))
        .stdout(socket)
        .envs(environment::for_the_server());
    let child = server.spawn().context("starting the server")?;
    Ok(Pid::from_raw(i32::try_from(child.id()).context("reading the server's pid")?))
}

/// Returns the server's code, when it has ended.
fn wait_for(server: Pid, signals: SigSet) -> anyhow::Result<ExitCode> {
    loop {
        match signals.wait().context("waiting for a signal")? {
            Signal::SIGCHLD => {
                if let Some(code) = bury(Some(server)) {
                    return Ok(code);
                }
            }
            Signal::SIGALRM => send(server, Signal::SIGKILL),
            _ => {
                send(server, Signal::SIGTERM);
                alarm::set(GRACE_SECONDS);
            }
        }
    }
}

/// What the server started and did not end is our child now, or becomes it when its own parent is gone.
fn end_the_rest(signals: SigSet) -> anyhow::Result<()> {
    alarm::set(SWEEP_SECONDS);
    loop {
        let rest = children::of(getpid());
        if rest.is_empty() {
            return Ok(());
        }
        rest.into_iter().for_each(|child| send(child, Signal::SIGKILL));
        if signals.wait().context("waiting for the last processes")? == Signal::SIGALRM {
            return Ok(());
        }
        bury(None);
    }
}

/// Waits for all that have ended; returns the server's code when it is among them.
fn bury(server: Option<Pid>) -> Option<ExitCode> {
    let mut code = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, exit)) if Some(pid) == server => {
                code = Some(ExitCode::from(u8::try_from(exit).unwrap_or(u8::MAX)));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if Some(pid) == server => {
                eprintln!("action-server: the server was ended by {signal}");
                code = Some(ExitCode::from(u8::try_from(128 + signal as i32).unwrap_or(u8::MAX)));
            }
            Ok(WaitStatus::StillAlive) => return code,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return code,
        }
    }
}

/// A process that is gone already needs no signal.
fn send(pid: Pid, signal: Signal) {
    _ = kill(pid, signal);
}
