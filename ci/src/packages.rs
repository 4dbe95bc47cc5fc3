//! Folders with packages of npm and PyPI in the cache, installed once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command;
use crate::scratch::ScratchFolder;

/// Returns the folder `name` of the cache with the packages of `list`. Calls `install` with an
/// empty folder unless an earlier run has installed the same list for the same version of Python.
pub(crate) fn install_once(
    cache: &Path,
    name: &str,
    list: &str,
    install: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    // Binary packages depend on Python's version.
    let mut python = Command::new("python3");
    python.args(["-c", "import sys; print(sys.implementation.cache_tag)"]);
    let python = command::capture(&mut python, "looking for Python")?;
    let folder = cache.join(format!("{name}-{}", python.trim()));
    let marker = |folder: &Path| folder.join("packages.txt");
    if fs::read_to_string(marker(&folder)).is_ok_and(|installed| installed == list) {
        return Ok(folder);
    }
    let scratch = ScratchFolder::new_in(cache)?;
    let new = scratch.path().join("packages");
    fs::create_dir(&new).with_context(|| format!("cannot create {}", new.display()))?;
    install(&new)?;
    fs::write(marker(&new), list).context("cannot write the list of installed packages")?;
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::rename(&new, &folder).with_context(|| format!("cannot move to {}", folder.display()))?;
    Ok(folder)
}

/// Installs packages, one in each line of `requirements`, for Python's path. Uses only binary
/// packages, because builds would need more than Python.
pub(crate) fn pip_install(target: &Path, requirements: &str) -> Result<()> {
    let mut pip = pip("install");
    pip.arg("--target").arg(target);
    pip.args(requirements.lines().filter(|line| !line.starts_with('#')));
    command::capture(&mut pip, "installing packages from PyPI")?;
    Ok(())
}

/// Returns pip with a subcommand and the options of all calls.
pub(crate) fn pip(subcommand: &str) -> Command {
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        subcommand,
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary",
        ":all:",
    ]);
    pip
}
