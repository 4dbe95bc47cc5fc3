//! Isolation of local sandboxes. Probed once by using it.
//!
//! Both methods provide new namespaces and the same [`View`] of the host's files. By default there
//! is no network except the sandbox's own loopback. `/dev` and terminals are its own, and all
//! processes are killed when PID 1 exits. The same system calls are refused, and no process has
//! capabilities, not even root.
//!
//! **bubblewrap** creates the namespaces with the program of that name. **Landlock** needs no other
//! program: this program creates them itself ([`crate::confine_if_requested`]), and also restricts
//! with Landlock which files can be opened.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use engine::sandbox::SandboxError;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::process::KnownProcess;
use super::view::View;
use super::{LocalConfig, RUNTIME, bubblewrap};
use crate::confine::{CONFINE_ARGUMENT, Confinement, ConfinementReport, Preparation};

/// bubblewrap takes 16 ms and Landlock less; the timeout allows for hosts under load.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length of a probe's output in an error.
const MAX_QUOTED_CHARS: usize = 300;

/// The configured isolation of local sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IsolationChoice {
    /// bubblewrap if it works, else Landlock. If neither works, no sandbox is created.
    Probe,
    /// Only this method.
    Only(IsolationKind),
    /// No isolation: processes in the sandbox have all rights of this program's user.
    Unsafe,
}

/// A method of isolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IsolationKind {
    /// Namespaces that the program `bwrap` creates.
    Bubblewrap,
    /// Namespaces that this program creates, with Landlock and seccomp.
    Landlock,
}

/// The isolation of this host's sandboxes. Its `Display` is for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Isolation {
    /// Namespaces.
    Bubblewrap {
        /// The program.
        program: PathBuf,
        /// Whether it can prevent a sandbox from creating nested namespaces.
        prevents_namespaces: bool,
    },
    /// Namespaces that this program creates, with Landlock and seccomp.
    Landlock {
        /// The used version of Landlock, at least 3.
        abi: i32,
    },
    /// No isolation.
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

/// Probes the configured isolation. Must not be dropped before it completes, which takes at most 15
/// s.
pub(super) async fn probe(config: &LocalConfig) -> Result<Isolation, SandboxError> {
    let kinds: &[IsolationKind] = match config.isolation {
        IsolationChoice::Probe => &[IsolationKind::Bubblewrap, IsolationKind::Landlock],
        IsolationChoice::Only(IsolationKind::Bubblewrap) => &[IsolationKind::Bubblewrap],
        IsolationChoice::Only(IsolationKind::Landlock) => &[IsolationKind::Landlock],
        IsolationChoice::Unsafe => return Ok(Isolation::None),
    };
    let mut reasons = Vec::new();
    for kind in kinds {
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
            "this host cannot isolate sandboxes ({}); install bubblewrap, allow user namespaces, or disable isolation \
             with --unsafe-local",
            reasons.join("; ")
        ),
    })
}

async fn probe_bubblewrap(config: &LocalConfig) -> Result<Isolation, String> {
    let program = config
        .bubblewrap
        .iter()
        .find(|path| path.is_file())
        .ok_or("it is not installed")?;
    let mut reason = String::new();
    for prevents_namespaces in [true, false] {
        let isolation =
            bubblewrap::isolation(program, prevents_namespaces, config.network, &View::base());
        let preparation = Preparation {
            bubblewrap: Some(isolation),
            ..Preparation::default()
        };
        let launch = LaunchCommand::new(&config.launcher, &preparation);
        let mut launch = launch.map_err(|error| error.to_string())?;
        // The only program that certainly exists is this one.
        launch.command.env_clear().arg(program).arg("--version");
        match run_probe(launch).await {
            Ok(_) => {
                return Ok(Isolation::Bubblewrap {
                    program: program.clone(),
                    prevents_namespaces,
                });
            }
            Err(failed) => reason = failed,
        }
    }
    Err(reason)
}

async fn probe_landlock(config: &LocalConfig) -> Result<Isolation, String> {
    let confinement = Confinement {
        mounts: View::base().mounts().into(),
        network: config.network,
    };
    let preparation = Preparation {
        confinement: Some(confinement),
        ..Preparation::default()
    };
    let launch = LaunchCommand::new(&config.launcher, &preparation);
    let mut launch = launch.map_err(|error| error.to_string())?;
    launch.command.env_clear();
    let report = run_probe(launch).await?;
    let ConfinementReport { landlock_abi } = serde_json::from_slice(&report).map_err(|error| {
        format!(
            "{} does not support confinement: {error}",
            config.launcher.display()
        )
    })?;
    Ok(Isolation::Landlock { abi: landlock_abi })
}

/// A command, and the start of its standard input.
pub(super) struct LaunchCommand {
    pub(super) command: Command,
    pub(super) input: Vec<u8>,
}

impl LaunchCommand {
    /// Returns the launcher with its preparation. A program and its arguments may follow.
    pub(super) fn new(launcher: &Path, preparation: &Preparation) -> io::Result<Self> {
        let mut command = Command::new(launcher);
        command.arg(CONFINE_ARGUMENT);
        Ok(Self {
            command,
            input: preparation.to_input()?,
        })
    }
}

/// Returns the output of a program, or its error output if it fails. Must not be dropped, and is
/// not interrupted by ^C of a terminal: if `bwrap` is killed during its start, its process in the
/// namespaces continues.
pub(super) async fn run_probe(
    LaunchCommand { mut command, input }: LaunchCommand,
) -> Result<Vec<u8>, String> {
    command.process_group(0);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut probe = command.spawn().map_err(|error| error.to_string())?;
    let pid = probe.id().and_then(|pid| i32::try_from(pid).ok());
    let stdin = probe.stdin.take();
    let output = async {
        if let Some(mut stdin) = stdin {
            // A program that fails before it has read the input reports the cause.
            let _ = stdin.write_all(&input).await;
        }
        probe.wait_with_output().await
    };
    let output = match timeout(PROBE_TIMEOUT, output).await {
        Ok(output) => output.map_err(|error| error.to_string())?,
        Err(_) => {
            // A process that cannot be killed is not awaited.
            if let Some(Ok(process)) = pid.map(KnownProcess::with_pid) {
                let _ = process.terminate_tree().await;
            }
            return Err(format!("no response within {} s", PROBE_TIMEOUT.as_secs()));
        }
    };
    if output.status.success() {
        return Ok(output.stdout);
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let message: String = message
        .lines()
        .last()
        .unwrap_or_default()
        .chars()
        .take(MAX_QUOTED_CHARS)
        .collect();
    Err(if message.is_empty() {
        output.status.to_string()
    } else {
        message
    })
}
