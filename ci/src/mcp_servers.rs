//! The reference MCP servers that tests speak with: had from npm and PyPI once, then kept in the target folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command;
use crate::scratch::Scratch;
use crate::workspace::Workspace;

/// Where tests find them: `node_modules` is in that folder, and `python`, which belongs on Python's path.
pub(crate) const VARIABLE: &str = "GLOVEBOX_TEST_MCP_SERVERS";

const NODE_PACKAGE: &str = "@modelcontextprotocol/server-everything@2026.8.31";
const PYTHON_PACKAGE: &str = "mcp-server-time==2026.10.19";

/// Installs them, unless that was done; no script of a package is run.
pub(crate) fn find(workspace: &Workspace) -> Result<PathBuf> {
    let cache = workspace.cache()?;
    // Some packages fit one version of Python only.
    let mut python = Command::new("python3");
    python.args(["-c", "import sys; print(sys.implementation.cache_tag)"]);
    let python = command::capture(&mut python, "looking for Python")?;
    let folder = cache.join(format!("mcp-servers-{}", python.trim()));
    let wanted = format!("{NODE_PACKAGE}\n{PYTHON_PACKAGE}\n");
    if fs::read_to_string(mark(&folder)).is_ok_and(|installed| installed == wanted) {
        return Ok(folder);
    }
    let scratch = Scratch::new_in(&cache)?;
    let new = scratch.path().join("packages");
    fs::create_dir(&new).with_context(|| format!("making {}", new.display()))?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--no-update-notifier", "--ignore-scripts", "--prefix"]);
    command::capture(npm.arg(&new).arg(NODE_PACKAGE), "installing an MCP server from npm")?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    pip.arg("--target").arg(new.join("python")).arg(PYTHON_PACKAGE);
    command::capture(&mut pip, "installing an MCP server from PyPI")?;
    fs::write(mark(&new), wanted).context("noting what is installed")?;
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    fs::rename(&new, &folder).with_context(|| format!("moving to {}", folder.display()))?;
    Ok(folder)
}

/// Says that all of it is there.
fn mark(folder: &Path) -> PathBuf {
    folder.join("packages.txt")
}
