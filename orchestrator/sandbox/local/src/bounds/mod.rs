//! Limits of a local sandbox's memory, CPUs and processes. Probed once by using them.
//!
//! **Control groups** limit a sandbox as a whole, as with containers. Root can create them
//! directly, and other users can request a systemd scope, which is a control group. **Resource
//! limits** are the fallback: they limit the memory of each process, and for an unprivileged user
//! the number of processes. Many small processes can exceed the memory limit then, and CPUs are not
//! limited.

mod control_group;
mod scope;

use std::fmt;
use std::path::Path;

use engine::sandbox::{ResourceLimits, SandboxDetails};
use rustix::process::geteuid;

use super::isolation::LaunchCommand;
use super::{CONTROL_GROUPS, LocalConfig};
use crate::confine::{Limits, Preparation};
pub(super) use control_group::ControlGroups;
use scope::Scopes;

/// The limits of this host's sandboxes. Its `Display` is for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Groups(ControlGroups),
    Scopes(Scopes),
    /// Why control groups are not available.
    Limits(String),
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Groups(_) => f.write_str("memory, processors and processes (control groups)"),
            Kind::Scopes(_) => f.write_str("memory, processors and processes (systemd scope)"),
            Kind::Limits(reason) if geteuid().is_root() => {
                write!(
                    f,
                    "memory of each process, neither processors nor processes ({reason})"
                )
            }
            Kind::Limits(reason) => {
                write!(
                    f,
                    "memory of each process, your processes together, not processors ({reason})"
                )
            }
        }
    }
}

impl Bounds {
    /// Probes the available limits.
    pub(super) async fn probe(config: &LocalConfig) -> Self {
        let systemd = match Scopes::probe(config).await {
            Ok(scopes) => return Self(Kind::Scopes(scopes)),
            Err(reason) => reason,
        };
        match ControlGroups::probe(&config.control_groups) {
            Ok(groups) => Self(Kind::Groups(groups)),
            Err(reason) => Self(Kind::Limits(format!("{systemd}; {reason}"))),
        }
    }

    /// Returns the limits that are enforced for a sandbox as a whole.
    pub(super) fn enforced(&self, resources: &ResourceLimits) -> SandboxDetails {
        match &self.0 {
            Kind::Groups(_) | Kind::Scopes(_) => SandboxDetails {
                memory_bytes: Some(resources.memory_bytes),
                cpus: Some(resources.cpus),
                pids: Some(resources.pids.into()),
                ..SandboxDetails::default()
            },
            Kind::Limits(_) => SandboxDetails::default(),
        }
    }

    /// Creates the limits of the sandbox with this name. Returns the launcher as a command that
    /// enters them, performs its preparation, and executes the program that is appended.
    pub(super) fn command(
        &self,
        launcher: &Path,
        name: &str,
        resources: &ResourceLimits,
        preparation: Preparation,
    ) -> std::io::Result<LaunchCommand> {
        let launch = |preparation| LaunchCommand::new(launcher, &preparation);
        match &self.0 {
            Kind::Groups(groups) => {
                let groups = groups.create(name, resources)?;
                launch(Preparation {
                    groups,
                    ..preparation
                })
            }
            Kind::Scopes(scopes) => {
                let LaunchCommand { command, input } = launch(Preparation {
                    removed_variables: scopes.environment(),
                    scope_mount_point: Some(CONTROL_GROUPS.into()),
                    ..preparation
                })?;
                Ok(LaunchCommand {
                    command: scopes.wrap(name, resources, command.as_std()),
                    input,
                })
            }
            Kind::Limits(_) => launch(Preparation {
                limits: Some(limits(resources)?),
                ..preparation
            }),
        }
    }
}

fn limits(resources: &ResourceLimits) -> std::io::Result<Limits> {
    // The kernel counts all processes of the user, and does not limit root.
    let processes = processes_of_this_user()?.saturating_add(resources.pids.into());
    Ok(Limits {
        data_bytes: resources.memory_bytes,
        processes,
    })
}

/// Threads, as the kernel counts them.
fn processes_of_this_user() -> std::io::Result<u64> {
    let own = geteuid().as_raw().to_string();
    let entries = std::fs::read_dir("/proc")?
        .flatten()
        .map(|entry| entry.path());
    // A process that exits meanwhile does not count.
    Ok(entries
        .filter_map(|process| threads_of_user(&own, &process))
        .sum())
}

fn threads_of_user(user: &str, process: &Path) -> Option<u64> {
    process.file_name()?.to_str()?.parse::<u32>().ok()?;
    let status = std::fs::read_to_string(process.join("status")).ok()?;
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
    };
    if field("Uid:")? != user {
        return None;
    }
    field("Threads:")?.parse().ok()
}
