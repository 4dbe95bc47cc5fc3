//! A folder that is gone when its owner is: also when something inside is still mounted, also (at the next run) when the
//! owner was killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::mount::{MntFlags, umount2};

use crate::command::GLANCE;
use crate::processes::{self, Process};
use crate::report;

/// Names the process that a folder belongs to. A folder without it is not ours and is never removed.
const OWNER: &str = "glovebox-ci-owner";

/// How long the kernel may take to forget a process that was killed.
const DEATH: Duration = Duration::from_secs(5);

/// A folder of ours, removed on drop.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    /// A new folder in `parent`; removes those there that belonged to a run that was killed.
    pub(crate) fn new_in(parent: &Path) -> Result<Self> {
        const PREFIX: &str = "glovebox-ci-";
        for entry in fs::read_dir(parent).with_context(|| format!("listing {}", parent.display()))? {
            let folder = entry?.path();
            let named_so = folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
            if named_so && is_orphan(&folder) {
                drop(Self { folder });
            }
        }
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?.keep();
        Self::own(folder)
    }

    /// `folder` itself, which must be new, empty, or left by a run that was killed.
    pub(crate) fn at(folder: &Path) -> Result<Self> {
        if is_orphan(folder) {
            clear(folder)?;
        }
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        if fs::read_dir(folder)?.next().is_some() {
            bail!("{} is in use or not ours: name a new or an empty folder", folder.display());
        }
        Self::own(folder.canonicalize()?)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }

    fn own(folder: PathBuf) -> Result<Self> {
        let pid = i32::try_from(std::process::id())?;
        let own = Process::read(pid).context("reading our own entry in /proc")?;
        fs::write(folder.join(OWNER), format!("{} {}", own.pid, own.started))
            .with_context(|| format!("marking {} as ours", folder.display()))?;
        Ok(Self { folder })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = clear(&self.folder) {
            report::note(&format!("removing {}: {error:#}", self.folder.display()));
        }
    }
}

/// Marked as ours, by a process that is no more.
fn is_orphan(folder: &Path) -> bool {
    let Ok(owner) = fs::read_to_string(folder.join(OWNER)) else { return false };
    let Some((pid, started)) = owner.split_once(' ') else { return false };
    let (Ok(pid), Ok(started)) = (pid.parse(), started.parse::<u64>()) else { return false };
    Process::read(pid).is_none_or(|process| process.started != started)
}

/// Ends the daemons that were told to live in `folder`, unmounts what is mounted in it, and removes it.
fn clear(folder: &Path) -> Result<()> {
    end_daemons(folder)?;
    for mount in mounts_in(&fs::read_to_string("/proc/self/mountinfo").context("reading mounts")?, folder) {
        umount2(&mount, MntFlags::MNT_DETACH).with_context(|| format!("unmounting {}", mount.display()))?;
    }
    fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))
}

/// What a container engine starts, and tells its folder on the command line. Nothing else that mentions the folder (an
/// editor with its log open) is ours to end.
const DAEMONS: &[&str] =
    &["dockerd", "docker-proxy", "containerd", "containerd-shim", "containerd-shim-runc-v2", "runc"];

/// Their children too: a container lives on when the shim above it is killed.
fn end_daemons(folder: &Path) -> Result<()> {
    let text = format!("{}/", folder.display());
    let deadline = Instant::now() + DEATH;
    loop {
        let all = processes::all()?;
        let is_daemon = |process: &&Process| process.is_program(DAEMONS) && process.mentions(&text);
        let daemons: Vec<i32> = all.iter().filter(is_daemon).map(|process| process.pid).collect();
        if daemons.is_empty() || Instant::now() >= deadline {
            return Ok(());
        }
        let ours = |process: &&Process| daemons.contains(&process.pid) || daemons.contains(&process.parent);
        all.iter().filter(ours).for_each(Process::kill);
        thread::sleep(GLANCE);
    }
}

/// Innermost first: the kernel lists them in the order they were made.
fn mounts_in(mountinfo: &str, folder: &Path) -> Vec<PathBuf> {
    let places = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    let mut mounts: Vec<PathBuf> = places.map(unescape).filter(|mount| mount.starts_with(folder)).collect();
    mounts.reverse();
    mounts
}

/// The kernel writes a space in a path as an octal escape.
fn unescape(place: &str) -> PathBuf {
    place.replace("\\040", " ").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_owner() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::new_in(parent.path()).unwrap();
        fs::write(scratch.path().join("x"), "").unwrap();
        drop(scratch);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_killed_owners_folder_goes_at_the_next_run_and_nobody_elses() {
        let parent = tempfile::tempdir().unwrap();
        for (name, owner) in [("glovebox-ci-dead", Some("2147483647 1")), ("glovebox-ci-notes", None)] {
            let folder = parent.path().join(name);
            fs::create_dir(&folder).unwrap();
            if let Some(owner) = owner {
                fs::write(folder.join(OWNER), owner).unwrap();
            }
        }
        let scratch = Scratch::new_in(parent.path()).unwrap();
        assert!(!parent.path().join("glovebox-ci-dead").exists());
        assert!(parent.path().join("glovebox-ci-notes").exists());
        assert!(Scratch::at(scratch.path()).unwrap_err().to_string().contains("in use or not ours"));
    }

    #[test]
    fn mounts_are_undone_from_the_inside() {
        let mountinfo = "1 0 0:1 / / rw\n2 1 0:2 / /t/a rw\n3 2 0:3 / /t/a/b\\040c rw\n4 1 0:4 / /t/ab rw";
        assert_eq!(mounts_in(mountinfo, Path::new("/t/a")), [Path::new("/t/a/b c"), Path::new("/t/a")]);
    }
}
