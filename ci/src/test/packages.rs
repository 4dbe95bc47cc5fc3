//! Programs that the tests run, installed from npm and PyPI once and then cached in the target folder: reference MCP servers,
//! clients of socket.io, of MCP and of OpenAI's API, the parser of metrics, an S3 server, and the generator of requests from an OpenAPI document.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command;
use crate::scratch::ScratchFolder;

/// Variable with the folder of the packages: it contains `node_modules` and `python`, an entry for Python's path.
pub(super) const VARIABLE: &str = "GLOVEBOX_TEST_PACKAGES";

const NODE_PACKAGES: [&str; 2] =
    ["@modelcontextprotocol/server-everything@2026.8.31", "socket.io-client@4.8.4"];
const PYTHON_PACKAGES: [&str; 10] = [
    "mcp-server-time==2026.10.19",
    "python-socketio==5.18.1",
    "aiohttp==3.14.5",
    "schemathesis==4.32.5",
    "openai==3.57.0",
    "mcp==2.3.0",
    "prometheus_client==0.26.0",
    "moto[s3]==5.2.5",
    "flask==3.1.3",
    "flask-cors==6.0.5",
];

/// Installs the packages unless an earlier run has, and returns their folder. Runs no installation scripts.
pub(crate) fn install(cache: &Path) -> Result<PathBuf> {
    // Binary packages depend on Python's version.
    let mut python = Command::new("python3");
    python.args(["-c", "import sys; print(sys.implementation.cache_tag)"]);
    let python = command::capture(&mut python, "looking for Python")?;
    let folder = cache.join(format!("test-packages-{}", python.trim()));
    let expected = format!("{}\n{}\n", NODE_PACKAGES.join("\n"), PYTHON_PACKAGES.join("\n"));
    if fs::read_to_string(marker(&folder)).is_ok_and(|installed| installed == expected) {
        return Ok(folder);
    }
    let scratch = ScratchFolder::new_in(cache)?;
    let new = scratch.path().join("packages");
    fs::create_dir(&new).with_context(|| format!("cannot create {}", new.display()))?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--no-update-notifier", "--ignore-scripts", "--prefix"]);
    command::capture(npm.arg(&new).args(NODE_PACKAGES), "installing packages from npm")?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    pip.arg("--target").arg(new.join("python")).args(PYTHON_PACKAGES);
    command::capture(&mut pip, "installing packages from PyPI")?;
    fs::write(marker(&new), expected).context("cannot write the list of installed packages")?;
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::rename(&new, &folder).with_context(|| format!("cannot move to {}", folder.display()))?;
    Ok(folder)
}

/// Returns the path of the list of packages, which is written after a complete installation.
fn marker(folder: &Path) -> PathBuf {
    folder.join("packages.txt")
}
