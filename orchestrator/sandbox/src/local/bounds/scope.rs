//! Scopes of systemd: control groups that it makes, and clears away when what is in them has ended.
//!
//! An ordinary user's own manager ends with the user's last session, and all scopes with it, but a sandbox is to outlive
//! the program that placed it: there are none then, unless that program would end in the same way, or the user lingers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use engine::sandbox::ResourceLimits;
use rustix::process::geteuid;
use tokio::process::Command;

use super::super::{LocalConfig, isolation};

/// There as long as systemd is what the machine began with.
const SYSTEMD_MARKER: &str = "/run/systemd/system";

/// Where it lies on most systems. Not looked for on PATH, which may lead into a workspace.
const PROGRAMS: [&str; 2] = ["/usr/bin/systemd-run", "/run/current-system/sw/bin/systemd-run"];

/// Users whose manager does not end with their sessions.
const LINGERING: &str = "/var/lib/systemd/linger";

/// How a user's own manager is found.
const RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";

/// Prints what bounds a scope, one a line.
const TELL: &str =
    "cd \"/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)\" && cat memory.max cpu.max pids.max";

/// How scopes are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scopes {
    program: PathBuf,
    /// The user's folder of sockets; nothing for root, whose manager is the machine's.
    runtime_dir: Option<PathBuf>,
    /// Whether the manager would end the whole scope when one of its processes is out of memory, unless told not to.
    is_told_to_go_on: bool,
}

impl Scopes {
    /// Makes one and looks at its bounds; why that does not go, in one line. Not to be dropped before it ends.
    pub(super) async fn probe(config: &LocalConfig) -> Result<Self, String> {
        if !Path::new(SYSTEMD_MARKER).exists() || !config.control_groups.join("cgroup.controllers").exists() {
            return Err("systemd makes no scopes here".into());
        }
        let is_root = geteuid().is_root();
        let runtime_dir = config.runtime_dir.clone().filter(|_| !is_root);
        if !is_root && (runtime_dir.is_none() || !outlives_sessions(config)) {
            return Err(
                "your scopes would end with your session (`loginctl enable-linger` keeps them)".into()
            );
        }
        let program = PROGRAMS.iter().map(PathBuf::from).find(|path| path.is_file());
        let program = program.ok_or("systemd-run is not installed")?;
        let mut reason = String::new();
        for is_told_to_go_on in [true, false] {
            let scopes =
                Self { program: program.clone(), runtime_dir: runtime_dir.clone(), is_told_to_go_on };
            let mut tell = std::process::Command::new("/bin/sh");
            tell.args(["-c", TELL]);
            let told = isolation::outcome(scopes.around("probe", &ResourceLimits::default(), &tell)).await;
            match told.map(|told| String::from_utf8_lossy(&told).into_owned()) {
                Ok(told)
                    if told.lines().count() == 3 && !told.lines().any(|line| line.starts_with("max")) =>
                {
                    return Ok(scopes);
                }
                Ok(told) => reason = format!("systemd's scopes are bounded by {:?} only", told.trim()),
                Err(error) => reason = format!("systemd makes no scope: {error}"),
            }
        }
        Err(reason)
    }

    /// What the program around has in its environment, and what is inside is not to have.
    pub(super) fn environment(&self) -> Vec<String> {
        self.runtime_dir.iter().map(|_| RUNTIME_DIR.to_owned()).collect()
    }

    /// The command, in a scope of its own.
    pub(super) fn around(
        &self,
        name: &str,
        resources: &ResourceLimits,
        command: &std::process::Command,
    ) -> Command {
        let mut around = Command::new("/usr/bin/env");
        if let Some(runtime_dir) = &self.runtime_dir {
            let mut variable = OsString::from(format!("{RUNTIME_DIR}="));
            variable.push(runtime_dir);
            around.arg(variable);
        }
        around.arg(&self.program).args(["--scope", "--quiet", "--collect", "--no-ask-password"]);
        if self.runtime_dir.is_some() {
            around.arg("--user");
        }
        around.arg(format!("--description=glovebox {name}"));
        for property in properties(resources, self.is_told_to_go_on) {
            around.arg("--property").arg(property);
        }
        around.arg("--").arg(command.get_program()).args(command.get_args());
        around
    }
}

fn properties(resources: &ResourceLimits, is_told_to_go_on: bool) -> Vec<String> {
    let ResourceLimits { memory_bytes, cpus, pids, .. } = resources;
    let mut properties = vec![
        format!("MemoryMax={memory_bytes}"),
        "MemorySwapMax=0".into(),
        format!("CPUQuota={:.0}%", (cpus * 100.0).max(1.0)),
        format!("TasksMax={pids}"),
    ];
    if is_told_to_go_on {
        properties.push("OOMPolicy=continue".into());
    }
    properties
}

fn outlives_sessions(config: &LocalConfig) -> bool {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let ends_with_it = own.contains(&format!("/user@{}.service/", geteuid().as_raw()));
    ends_with_it || config.user.as_ref().is_some_and(|user| Path::new(LINGERING).join(user).exists())
}

#[cfg(test)]
mod tests {
    use engine::sandbox::ResourceLimits;

    use super::properties;

    #[test]
    fn a_scope_is_told_its_bounds() {
        let resources = ResourceLimits { memory_bytes: 1 << 30, cpus: 1.5, pids: 100, disk_bytes: 1 };
        let expected = ["MemoryMax=1073741824", "MemorySwapMax=0", "CPUQuota=150%", "TasksMax=100"];
        assert_eq!(properties(&resources, false), expected);
        assert_eq!(properties(&resources, true).last().unwrap(), "OOMPolicy=continue");
    }
}
