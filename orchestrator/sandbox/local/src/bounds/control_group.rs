//! Control groups of both versions, for root if their file system is writable, and for a service of
//! systemd that may create some.
//!
//! Root's sandboxes have groups below a top-level group, as with container engines, because this
//! program's own group may be removed before the sandbox. Those of a service are below the
//! service's group, which systemd keeps while it has processes, also between two starts of the
//! service. The unit needs `Delegate=`, and `DelegateSubgroup=` for the program itself: a group
//! with processes of its own cannot bound groups below it. The names are derived from the
//! installation and the sandbox, so that the groups are found without a record. Outside of a
//! service, its groups are found by the processes of their sandboxes.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::sandbox::ResourceLimits;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::super::process::{KnownProcess, kill_all};
use crate::confine::{ControlGroup, GROUP_MEMBERS};

/// Attribute of a group in which systemd leaves the creation of groups to the unit.
const DELEGATED: &str = "user.delegate";

/// The parent of all groups.
const PARENT: &str = "glovebox";

/// The scheduler's period, in microseconds.
const CPU_PERIOD: u32 = 100_000;

/// An exited process stays in its group until the kernel has reaped it.
const MAX_REMOVAL_ATTEMPTS: u32 = 200;
const REMOVAL_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Another process may remove the parent between its creation and its use, since it is empty.
const MAX_CREATION_ATTEMPTS: u32 = 10;

/// The hierarchies in which groups can be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct ControlGroups {
    hierarchies: Vec<Hierarchy>,
}

/// One hierarchy of groups.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    mount_point: PathBuf,
    /// The group with the parent of the sandboxes' groups.
    root: PathBuf,
    bounds: Bounds,
}

/// The limits of a hierarchy, and its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bounds {
    Everything,
    Memory,
    Processors,
    Processes,
}

/// A setting of a group, and whether the group is useless without it.
struct Setting {
    file: &'static str,
    value: String,
    is_needed: bool,
}

impl ControlGroups {
    /// Finds where groups can be created. The error is one line.
    pub(super) fn probe(file_system: &Path) -> Result<Self, String> {
        let top_level = Self::probed(hierarchies(file_system));
        match delegated(file_system) {
            Some(hierarchy) if top_level.is_err() => Self::probed(vec![hierarchy]),
            _ => top_level,
        }
    }

    /// Creates and removes a group as a probe.
    fn probed(hierarchies: Vec<Hierarchy>) -> Result<Self, String> {
        let groups = Self { hierarchies };
        let name = format!("probe-{}", std::process::id());
        let created = groups
            .enable()
            .and_then(|()| groups.create(&name, &ResourceLimits::default()));
        for hierarchy in &groups.hierarchies {
            let _ = fs::remove_dir(hierarchy.group(&name));
            let _ = fs::remove_dir(hierarchy.parent());
        }
        created.map_err(|error| format!("cannot create control groups: {error}"))?;
        Ok(groups)
    }

    /// Enables the controllers for child groups, as version 2 requires.
    fn enable(&self) -> io::Result<()> {
        for hierarchy in self
            .hierarchies
            .iter()
            .filter(|hierarchy| hierarchy.bounds == Bounds::Everything)
        {
            enable_in(&hierarchy.root)?;
        }
        Ok(())
    }

    /// Returns all hierarchies that can have groups with this name. `server` is a process of the
    /// sandbox: a service may have created its groups below its own.
    pub(in super::super) fn of_sandbox(
        file_system: &Path,
        name: &str,
        server: Option<i32>,
    ) -> Self {
        let of_server = server.and_then(|server| of_member(file_system, name, server));
        let mut hierarchies = hierarchies(file_system);
        hierarchies.extend(of_server.or_else(|| delegated(file_system)));
        Self { hierarchies }
    }

    /// Kills the processes of the groups with this name in all hierarchies, and removes the groups.
    /// Idempotent.
    pub(in super::super) async fn remove(&self, name: &str) -> io::Result<()> {
        for hierarchy in &self.hierarchies {
            hierarchy.remove(name).await?;
        }
        Ok(())
    }

    /// Creates the groups with this name, for a process that enters them.
    pub(super) fn create(
        &self,
        name: &str,
        resources: &ResourceLimits,
    ) -> io::Result<Vec<ControlGroup>> {
        self.hierarchies
            .iter()
            .map(|hierarchy| hierarchy.create(name, resources))
            .collect()
    }
}

/// Returns all hierarchies of both versions with their controllers.
fn hierarchies(file_system: &Path) -> Vec<Hierarchy> {
    if file_system.join("cgroup.controllers").exists() {
        return vec![Hierarchy::new(file_system.to_owned(), Bounds::Everything)];
    }
    [
        ("memory", Bounds::Memory),
        ("cpu", Bounds::Processors),
        ("pids", Bounds::Processes),
    ]
    .map(|(controller, bounds)| Hierarchy::new(file_system.join(controller), bounds))
    .into()
}

/// Returns the hierarchy below the group of this program's service. `None` unless systemd has
/// started the program in a subgroup.
fn delegated(file_system: &Path) -> Option<Hierarchy> {
    let own = ControlGroup::of_process("self", file_system).ok()?.folder;
    let root = own.parent()?.to_owned();
    let mut value = [0];
    let is_delegated = rustix::fs::getxattr(&root, DELEGATED, &mut value).is_ok() && value == *b"1";
    let mount_point = file_system.to_owned();
    is_delegated.then_some(Hierarchy {
        mount_point,
        root,
        bounds: Bounds::Everything,
    })
}

/// Returns the hierarchy in which a process is in the group with this name.
fn of_member(file_system: &Path, name: &str, process: i32) -> Option<Hierarchy> {
    let group = ControlGroup::of_process(&process.to_string(), file_system)
        .ok()?
        .folder;
    let parent = group
        .parent()
        .filter(|parent| parent.ends_with(PARENT) && group.ends_with(name))?;
    let (mount_point, root) = (file_system.to_owned(), parent.parent()?.to_owned());
    Some(Hierarchy {
        mount_point,
        root,
        bounds: Bounds::Everything,
    })
}

fn enable_in(group: &Path) -> io::Result<()> {
    write(&group.join("cgroup.subtree_control"), "+cpu +memory +pids")
}

impl Hierarchy {
    /// Returns the hierarchy with groups at the top.
    fn new(mount_point: PathBuf, bounds: Bounds) -> Self {
        Self {
            root: mount_point.clone(),
            mount_point,
            bounds,
        }
    }

    fn parent(&self) -> PathBuf {
        self.root.join(PARENT)
    }

    fn group(&self, name: &str) -> PathBuf {
        self.parent().join(name)
    }

    fn create(&self, name: &str, resources: &ResourceLimits) -> io::Result<ControlGroup> {
        let group = self.group(name);
        self.create_folder(&group)?;
        for Setting {
            file,
            value,
            is_needed,
        } in self.bounds.settings(resources)
        {
            match write(&group.join(file), &value) {
                Err(error) if is_needed => return Err(error),
                _ => {}
            }
        }
        Ok(ControlGroup {
            folder: group,
            mount_point: self.mount_point.clone(),
        })
    }

    fn create_folder(&self, group: &Path) -> io::Result<()> {
        let mut attempt = 0;
        loop {
            let created = self.create_parent().and_then(|()| fs::create_dir(group));
            attempt += 1;
            match created {
                Err(error)
                    if error.kind() == ErrorKind::NotFound && attempt < MAX_CREATION_ATTEMPTS => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
                result => return result.map_err(|error| with_path("create", group, error)),
            }
        }
    }

    fn create_parent(&self) -> io::Result<()> {
        match fs::create_dir(self.parent()) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ if self.bounds == Bounds::Everything => enable_in(&self.parent()),
            _ => Ok(()),
        }
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        let group = self.group(name);
        if !group.exists() {
            return Ok(());
        }
        for _ in 0..MAX_REMOVAL_ATTEMPTS {
            match fs::remove_dir(&group) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(with_path("remove", &group, error));
                }
                _ => {
                    // Fails while it contains other groups.
                    let _ = fs::remove_dir(self.parent());
                    return Ok(());
                }
            }
            let busy = group.clone();
            // On a blocking thread: the runtime has no safe way to wait for a pidfd.
            let killed = spawn_blocking(move || kill_members(&busy)).await;
            killed.unwrap_or_else(|panic| Err(panic.into()))?;
            sleep(REMOVAL_RETRY_INTERVAL).await;
        }
        Err(with_path("remove", &group, ErrorKind::TimedOut.into()))
    }
}

impl Bounds {
    fn settings(self, resources: &ResourceLimits) -> Vec<Setting> {
        let needed = |file, value: String| Setting {
            file,
            value,
            is_needed: true,
        };
        // The file does not exist if the kernel does not count it.
        let swap = |file, value: String| Setting {
            file,
            value,
            is_needed: false,
        };
        let ResourceLimits {
            memory_bytes,
            cpus,
            pids,
            ..
        } = resources;
        let quota = quota(*cpus);
        let pids = || needed("pids.max", pids.to_string());
        match self {
            Self::Everything => vec![
                needed("memory.max", memory_bytes.to_string()),
                swap("memory.swap.max", "0".into()),
                needed("cpu.max", format!("{quota} {CPU_PERIOD}")),
                pids(),
            ],
            Self::Memory => vec![
                needed("memory.limit_in_bytes", memory_bytes.to_string()),
                swap("memory.memsw.limit_in_bytes", memory_bytes.to_string()), // together: no swap on top
            ],
            Self::Processors => vec![
                needed("cpu.cfs_period_us", CPU_PERIOD.to_string()),
                needed("cpu.cfs_quota_us", quota.to_string()),
            ],
            Self::Processes => vec![pids()],
        }
    }
}

/// The kernel's minimum is a millisecond.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an approximate limit suffices"
)]
fn quota(cpus: f64) -> u64 {
    ((cpus * f64::from(CPU_PERIOD)) as u64).max(1000)
}

/// Kills the processes of a group. Checks their membership again, because an id may have been
/// reused.
fn kill_members(group: &Path) -> io::Result<()> {
    let listed = members(group);
    let known: Vec<KnownProcess> = listed
        .into_iter()
        .filter_map(|pid| KnownProcess::with_pid(pid).ok())
        .collect();
    let still = members(group);
    let known: Vec<KnownProcess> = known
        .into_iter()
        .filter(|process| still.contains(&process.pid))
        .collect();
    kill_all(&known).map(drop)
}

fn members(group: &Path) -> Vec<i32> {
    let text = fs::read_to_string(group.join(GROUP_MEMBERS)).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .open(file)
        .and_then(|mut opened| io::Write::write_all(&mut opened, text.as_bytes()))
        .map_err(|error| with_path("write", file, error))
}

fn with_path(operation: &str, path: &Path, error: io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot {operation} {}: {error}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use engine::sandbox::ResourceLimits;

    use super::{Bounds, quota};

    #[test]
    fn both_versions_have_the_same_settings() {
        let resources = ResourceLimits {
            memory_bytes: 1 << 30,
            cpus: 1.5,
            pids: 100,
            disk_bytes: 1,
        };
        let settings = |bounds: Bounds| {
            let settings = bounds.settings(&resources).into_iter();
            settings
                .map(|setting| format!("{}={}", setting.file, setting.value))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            settings(Bounds::Everything),
            "memory.max=1073741824 memory.swap.max=0 cpu.max=150000 100000 pids.max=100"
        );
        assert_eq!(
            [Bounds::Memory, Bounds::Processors, Bounds::Processes].map(settings),
            [
                "memory.limit_in_bytes=1073741824 memory.memsw.limit_in_bytes=1073741824",
                "cpu.cfs_period_us=100000 cpu.cfs_quota_us=150000",
                "pids.max=100",
            ]
        );
        assert_eq!(quota(0.001), 1000);
    }
}
