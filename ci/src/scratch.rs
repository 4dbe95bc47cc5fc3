//! A temporary folder that is removed on drop, even if it contains mounts. The next run removes the
//! folders of a killed one.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::mount::{MntFlags, umount2};

use crate::command::POLL_INTERVAL;
use crate::processes::{self, ProcessEntry};
use crate::report;

/// Name of the file that records the owning process. A folder without it is never removed.
const OWNER_FILE: &str = "glovebox-ci-owner";

/// Time for killed processes to disappear.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// A folder that is owned by this process and removed on drop.
#[derive(Debug)]
pub(crate) struct ScratchFolder {
    folder: PathBuf,
}

impl ScratchFolder {
    /// Creates a folder in `parent`, and removes those of killed runs there.
    pub(crate) fn new_in(parent: &Path) -> Result<Self> {
        const PREFIX: &str = "glovebox-ci-";
        for entry in
            fs::read_dir(parent).with_context(|| format!("cannot list {}", parent.display()))?
        {
            let folder = entry?.path();
            let has_prefix = folder
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
            if has_prefix && is_orphan(&folder) {
                drop(Self { folder });
            }
        }
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(parent)?
            .keep();
        Self::own(folder)
    }

    /// Takes `folder`, which must be missing, empty, or left by a killed run.
    pub(crate) fn at(folder: &Path) -> Result<Self> {
        if is_orphan(folder) {
            clear(folder)?;
        }
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        if fs::read_dir(folder)?.next().is_some() {
            bail!(
                "{} is in use or not ours: name a new or an empty folder",
                folder.display()
            );
        }
        Self::own(folder.canonicalize()?)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }

    fn own(folder: PathBuf) -> Result<Self> {
        let pid = i32::try_from(std::process::id())?;
        let own = ProcessEntry::read(pid).context("cannot read our own entry in /proc")?;
        fs::write(
            folder.join(OWNER_FILE),
            format!("{} {}", own.pid, own.started),
        )
        .with_context(|| format!("cannot mark {} as ours", folder.display()))?;
        Ok(Self { folder })
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        if let Err(error) = clear(&self.folder) {
            report::note(&format!(
                "cannot remove {}: {error:#}",
                self.folder.display()
            ));
        }
    }
}

/// Whether the folder is marked as ours and its owner has exited.
fn is_orphan(folder: &Path) -> bool {
    let Ok(owner) = fs::read_to_string(folder.join(OWNER_FILE)) else {
        return false;
    };
    let Some((pid, started)) = owner.split_once(' ') else {
        return false;
    };
    let (Ok(pid), Ok(started)) = (pid.parse(), started.parse::<u64>()) else {
        return false;
    };
    ProcessEntry::read(pid).is_none_or(|process| process.started != started)
}

/// Kills the daemons that use `folder`, unmounts everything in it, and removes it.
fn clear(folder: &Path) -> Result<()> {
    kill_daemons(folder)?;
    for mount in mounts_in(
        &fs::read_to_string("/proc/self/mountinfo").context("cannot read the mounts")?,
        folder,
    ) {
        umount2(&mount, MntFlags::MNT_DETACH)
            .with_context(|| format!("cannot unmount {}", mount.display()))?;
    }
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
}

/// Programs of a container engine, which have its folder on their command lines. Other processes
/// that mention the folder, such as an editor with its log open, are not killed.
const DAEMONS: &[&str] = &[
    "dockerd",
    "docker-proxy",
    "containerd",
    "containerd-shim",
    "containerd-shim-runc-v2",
    "runc",
];

/// Kills the daemons and their children, because a container survives the death of its shim.
fn kill_daemons(folder: &Path) -> Result<()> {
    let text = format!("{}/", folder.display());
    let deadline = Instant::now() + KILL_TIMEOUT;
    loop {
        let all = processes::list()?;
        let is_daemon = |process: &&ProcessEntry| {
            process.is_program(DAEMONS) && process.has_argument_with(&text)
        };
        let daemons: Vec<i32> = all
            .iter()
            .filter(is_daemon)
            .map(|process| process.pid)
            .collect();
        if daemons.is_empty() || Instant::now() >= deadline {
            return Ok(());
        }
        let ours = |process: &&ProcessEntry| {
            daemons.contains(&process.pid) || daemons.contains(&process.parent)
        };
        all.iter().filter(ours).for_each(ProcessEntry::kill);
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the mounts below `folder`, innermost first. The kernel lists them in the order of
/// creation.
fn mounts_in(mountinfo: &str, folder: &Path) -> Vec<PathBuf> {
    let paths = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    let mut mounts: Vec<PathBuf> = paths
        .map(unescape)
        .filter(|mount| mount.starts_with(folder))
        .collect();
    mounts.reverse();
    mounts
}

/// Decodes the kernel's octal escape of a space.
fn unescape(path: &str) -> PathBuf {
    path.replace("\\040", " ").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_removed_on_drop() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = ScratchFolder::new_in(parent.path()).unwrap();
        fs::write(scratch.path().join("x"), "").unwrap();
        drop(scratch);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_folders_of_killed_owners_are_removed_on_next_run() {
        let parent = tempfile::tempdir().unwrap();
        for (name, owner) in [
            ("glovebox-ci-dead", Some("2147483647 1")),
            ("glovebox-ci-notes", None),
        ] {
            let folder = parent.path().join(name);
            fs::create_dir(&folder).unwrap();
            if let Some(owner) = owner {
                fs::write(folder.join(OWNER_FILE), owner).unwrap();
            }
        }
        let scratch = ScratchFolder::new_in(parent.path()).unwrap();
        assert!(!parent.path().join("glovebox-ci-dead").exists());
        assert!(parent.path().join("glovebox-ci-notes").exists());
        assert!(
            ScratchFolder::at(scratch.path())
                .unwrap_err()
                .to_string()
                .contains("in use or not ours")
        );
    }

    #[test]
    fn mounts_are_listed_innermost_first() {
        let mountinfo =
            "1 0 0:1 / / rw\n2 1 0:2 / /t/a rw\n3 2 0:3 / /t/a/b\\040c rw\n4 1 0:4 / /t/ab rw";
        assert_eq!(
            mounts_in(mountinfo, Path::new("/t/a")),
            [Path::new("/t/a/b c"), Path::new("/t/a")]
        );
    }
}
