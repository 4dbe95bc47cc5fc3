//! systemd scopes: control groups that systemd creates, and removes when their processes have
//! exited.
//!
//! The systemd manager of an unprivileged user, with all scopes, stops with the user's last
//! session, but a sandbox must outlive the program that created it. Scopes are used only if that
//! program would be stopped too, or the user lingers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use engine::sandbox::ResourceLimits;
use rustix::process::geteuid;
use tokio::process::Command;

use super::super::LocalConfig;
use super::super::isolation::{LaunchCommand, run_probe};

/// Exists if systemd is the machine's init.
const SYSTEMD_MARKER: &str = "/run/systemd/system";

/// Common paths of `systemd-run`. PATH is not searched, because it may contain a workspace.
const PROGRAMS: [&str; 2] = [
    "/usr/bin/systemd-run",
    "/run/current-system/sw/bin/systemd-run",
];

/// Lists the users whose manager continues after their sessions.
const LINGERING: &str = "/var/lib/systemd/linger";

/// The variables through which the user's manager is found.
const RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";

/// Prints the limits of a scope, one per line.
const PRINT_LIMITS_SCRIPT: &str =
    "cd \"/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)\" && cat memory.max cpu.max pids.max";

/// The way to request scopes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scopes {
    program: PathBuf,
    /// The user's runtime folder. `None` for root, who uses the system manager.
    runtime_dir: Option<PathBuf>,
    /// Whether to set `OOMPolicy=continue`, which old versions do not support. By default, the
    /// manager kills the whole scope if one process runs out of memory.
    sets_oom_policy: bool,
}

impl Scopes {
    /// Creates a scope and inspects its limits as a probe. The error is one line. Must not be
    /// dropped before it completes.
    pub(super) async fn probe(config: &LocalConfig) -> Result<Self, String> {
        if !Path::new(SYSTEMD_MARKER).exists()
            || !config.control_groups.join("cgroup.controllers").exists()
        {
            return Err("systemd cannot create scopes here".into());
        }
        let is_root = geteuid().is_root();
        let runtime_dir = config.runtime_dir.clone().filter(|_| !is_root);
        if !is_root && (runtime_dir.is_none() || !outlives_sessions(config)) {
            return Err(
                "systemd scopes would stop with your session (`loginctl enable-linger` prevents that)".into(),
            );
        }
        let program = PROGRAMS
            .iter()
            .map(PathBuf::from)
            .find(|path| path.is_file());
        let program = program.ok_or("systemd-run is not installed")?;
        let mut reason = String::new();
        for sets_oom_policy in [true, false] {
            let scopes = Self {
                program: program.clone(),
                runtime_dir: runtime_dir.clone(),
                sets_oom_policy,
            };
            let mut print_limits = std::process::Command::new("/bin/sh");
            print_limits.args(["-c", PRINT_LIMITS_SCRIPT]);
            let command = scopes.wrap("probe", &ResourceLimits::default(), &print_limits);
            let printed = run_probe(LaunchCommand {
                command,
                input: Vec::new(),
            })
            .await;
            match printed.map(|limits| String::from_utf8_lossy(&limits).into_owned()) {
                Ok(limits)
                    if limits.lines().count() == 3
                        && !limits.lines().any(|line| line.starts_with("max")) =>
                {
                    return Ok(scopes);
                }
                Ok(limits) => {
                    reason = format!("systemd scopes have only the limits {:?}", limits.trim());
                }
                Err(error) => reason = format!("systemd cannot create a scope: {error}"),
            }
        }
        Err(reason)
    }

    /// Variables that `systemd-run` needs and the sandbox must not inherit.
    pub(super) fn environment(&self) -> Vec<String> {
        self.runtime_dir
            .iter()
            .map(|_| RUNTIME_DIR.to_owned())
            .collect()
    }

    /// Returns the command in a new scope.
    pub(super) fn wrap(
        &self,
        name: &str,
        resources: &ResourceLimits,
        command: &std::process::Command,
    ) -> Command {
        let mut wrapper = Command::new("/usr/bin/env");
        if let Some(runtime_dir) = &self.runtime_dir {
            let mut variable = OsString::from(format!("{RUNTIME_DIR}="));
            variable.push(runtime_dir);
            wrapper.arg(variable);
        }
        wrapper
            .arg(&self.program)
            .args(["--scope", "--quiet", "--collect", "--no-ask-password"]);
        if self.runtime_dir.is_some() {
            wrapper.arg("--user");
        }
        wrapper.arg(format!("--description=glovebox {name}"));
        for property in properties(resources, self.sets_oom_policy) {
            wrapper.arg("--property").arg(property);
        }
        wrapper
            .arg("--")
            .arg(command.get_program())
            .args(command.get_args());
        wrapper
    }
}

fn properties(resources: &ResourceLimits, sets_oom_policy: bool) -> Vec<String> {
    let ResourceLimits {
        memory_bytes,
        cpus,
        pids,
        ..
    } = resources;
    let mut properties = vec![
        format!("MemoryMax={memory_bytes}"),
        "MemorySwapMax=0".into(),
        format!("CPUQuota={:.0}%", (cpus * 100.0).max(1.0)),
        format!("TasksMax={pids}"),
    ];
    if sets_oom_policy {
        properties.push("OOMPolicy=continue".into());
    }
    properties
}

fn outlives_sessions(config: &LocalConfig) -> bool {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let stops_with_manager = own.contains(&format!("/user@{}.service/", geteuid().as_raw()));
    stops_with_manager
        || config
            .user
            .as_ref()
            .is_some_and(|user| Path::new(LINGERING).join(user).exists())
}

#[cfg(test)]
mod tests {
    use engine::sandbox::ResourceLimits;

    use super::properties;

    #[test]
    fn scope_properties_contain_all_limits() {
        let resources = ResourceLimits {
            memory_bytes: 1 << 30,
            cpus: 1.5,
            pids: 100,
            disk_bytes: 1,
        };
        let expected = [
            "MemoryMax=1073741824",
            "MemorySwapMax=0",
            "CPUQuota=150%",
            "TasksMax=100",
        ];
        assert_eq!(properties(&resources, false), expected);
        assert_eq!(
            properties(&resources, true).last().unwrap(),
            "OOMPolicy=continue"
        );
    }
}
