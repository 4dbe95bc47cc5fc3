//! What isolates a local sandbox: found out once, by doing it.
//!
//! Both ways give it namespaces of its own and the same [`View`] of the host's files; it reaches no network but a loopback
//! of its own, has a `/dev` and terminals of its own, and everything in it ends with its first process. The same system
//! calls are refused, and nothing has a capability, root neither.
//!
//! **bubblewrap** makes the namespaces with the program of that name. **Landlock** needs no program: this one makes them
//! itself ([`crate::confine_if_asked`]), and lets Landlock bound what can be opened as well.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use engine::sandbox::SandboxError;
use tokio::process::Command;
use tokio::time::timeout;

use super::process::KnownProcess;
use super::view::View;
use super::{LocalConfig, RUNTIME, bubblewrap};
use crate::confine::{AroundBubblewrap, CONFINE_ARGUMENT, Confined, Confinement, Preparation};

/// bubblewrap takes 16 ms and Landlock less; the timeout allows for hosts under load.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length of a probe's output in an error.
const MAX_QUOTED_CHARS: usize = 300;

/// How a host wants its local sandboxes kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolationChoice {
    /// The best that works here: bubblewrap, else Landlock, else none is placed.
    Probe,
    /// This way or none.
    Only(IsolationKind),
    /// Not at all: what runs in them can do what this program's user can.
    Unsafe,
}

/// A way to keep a sandbox in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolationKind {
    /// Namespaces, made by the program `bwrap`.
    Bubblewrap,
    /// Namespaces that this program makes, with Landlock and seccomp.
    Landlock,
}

/// What keeps the sandboxes of this host in. Displayed it is what a user is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Isolation {
    /// Namespaces.
    Bubblewrap {
        /// The program.
        program: PathBuf,
        /// Whether it can keep a sandbox from making namespaces in its own.
        keeps_namespaces_out: bool,
    },
    /// Namespaces that this program makes, with Landlock and seccomp.
    Landlock {
        /// The kernel's version of Landlock, as far as it is used: 3 or more.
        abi: i32,
    },
    /// Nothing.
    None,
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bubblewrap { .. } => f.write_str("bubblewrap"),
            Self::Landlock { .. } => f.write_str("namespaces, Landlock and seccomp"),
            Self::None => f.write_str("none"),
        }
    }
}

/// Finds out what there is of what is wanted. Not to be dropped before it ends, within 15 s.
pub(super) async fn probe(config: &LocalConfig) -> Result<Isolation, SandboxError> {
    let wanted: &[IsolationKind] = match config.isolation {
        IsolationChoice::Probe => &[IsolationKind::Bubblewrap, IsolationKind::Landlock],
        IsolationChoice::Only(IsolationKind::Bubblewrap) => &[IsolationKind::Bubblewrap],
        IsolationChoice::Only(IsolationKind::Landlock) => &[IsolationKind::Landlock],
        IsolationChoice::Unsafe => return Ok(Isolation::None),
    };
    let mut reasons = Vec::new();
    for kind in wanted {
        let (name, found) = match kind {
            IsolationKind::Bubblewrap => ("bubblewrap", probe_bubblewrap(config).await),
            IsolationKind::Landlock => ("Landlock", probe_landlock(config).await),
        };
        match found {
            Ok(found) => return Ok(found),
            Err(reason) => reasons.push(format!("{name}: {reason}")),
        }
    }
    Err(SandboxError::RuntimeUnavailable {
        runtime: RUNTIME,
        detail: format!(
            "nothing here isolates a sandbox ({}); install bubblewrap, allow user namespaces, or do without isolation \
             with --unsafe-local",
            reasons.join("; ")
        ),
    })
}

async fn probe_bubblewrap(config: &LocalConfig) -> Result<Isolation, String> {
    let program = config.bubblewrap.iter().find(|path| path.is_file()).ok_or("it is not installed")?;
    let mut reason = String::new();
    for keeps_namespaces_out in [true, false] {
        let mut command = around_bubblewrap(&config.launcher, program, config.network)?;
        command.env_clear().args(bubblewrap::namespaces(keeps_namespaces_out, config.network));
        // One program is certainly there: itself.
        command.args(bubblewrap::mounts(&View::base())).arg("--").arg(program).arg("--version");
        match outcome(command).await {
            Ok(_) => return Ok(Isolation::Bubblewrap { program: program.clone(), keeps_namespaces_out }),
            Err(failed) => reason = failed,
        }
    }
    Err(reason)
}

async fn probe_landlock(config: &LocalConfig) -> Result<Isolation, String> {
    let confinement = Confinement { mounts: View::base().mounts().into(), network: config.network };
    let preparation = Preparation { confinement: Some(confinement), ..Preparation::default() };
    let mut command = prepared(&config.launcher, &preparation).map_err(|error| error.to_string())?;
    command.env_clear();
    let said = outcome(command).await?;
    let Confined { landlock_abi } = serde_json::from_slice(&said)
        .map_err(|error| format!("{} does not confine: {error}", config.launcher.display()))?;
    Ok(Isolation::Landlock { abi: landlock_abi })
}

fn around_bubblewrap(launcher: &Path, bwrap: &Path, network: bool) -> Result<Command, String> {
    let preparation =
        Preparation { bubblewrap: Some(AroundBubblewrap { network }), ..Preparation::default() };
    let mut command = prepared(launcher, &preparation).map_err(|error| error.to_string())?;
    command.arg(bwrap);
    Ok(command)
}

/// The launcher, told how to prepare itself; a program and its arguments may follow.
pub(super) fn prepared(launcher: &Path, preparation: &Preparation) -> io::Result<Command> {
    let mut command = Command::new(launcher);
    command.arg(CONFINE_ARGUMENT).arg(serde_json::to_string(preparation).map_err(io::Error::other)?);
    Ok(command)
}

/// What a program prints that ends well; else what it complains of. Not to be dropped before, nor reached by a terminal's
/// ^C: of a `bwrap` that is killed while it starts, the half that is in the namespaces stays.
pub(super) async fn outcome(mut command: Command) -> Result<Vec<u8>, String> {
    command.process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let probe = command.spawn().map_err(|error| error.to_string())?;
    let pid = probe.id().and_then(|pid| i32::try_from(pid).ok());
    let output = match timeout(PROBE_TIMEOUT, probe.wait_with_output()).await {
        Ok(output) => output.map_err(|error| error.to_string())?,
        Err(_) => {
            // One that cannot be ended either is not waited for.
            if let Some(Ok(process)) = pid.map(KnownProcess::with_pid) {
                let _ = process.end_with_descendants().await;
            }
            return Err(format!("no answer within {} s", PROBE_TIMEOUT.as_secs()));
        }
    };
    if output.status.success() {
        return Ok(output.stdout);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint: String =
        complaint.lines().last().unwrap_or_default().chars().take(MAX_QUOTED_CHARS).collect();
    Err(if complaint.is_empty() { output.status.to_string() } else { complaint })
}
