//! Programs that the tests run, installed from npm and PyPI once and then cached in the target
//! folder: reference MCP servers, clients of socket.io, of MCP, and of OpenAI's and Anthropic's
//! APIs, the parser of metrics, an S3 server, and the generator of requests from an OpenAPI
//! document.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::command;
use crate::packages::{install_once, pip_install};

/// Variable with the folder of the packages: it contains `node_modules` and `python`, an entry for
/// Python's path.
pub(super) const VARIABLE: &str = "GLOVEBOX_TEST_PACKAGES";

const NODE_PACKAGES: [&str; 2] = [
    "@modelcontextprotocol/server-everything@2026.8.31",
    "socket.io-client@4.8.4",
];
const PYTHON_PACKAGES: &str = concat!(
    "mcp-server-time==2026.10.19\n",
    "python-socketio==5.18.1\n",
    "aiohttp==3.14.5\n",
    "schemathesis==4.32.5\n",
    "openai==3.57.0\n",
    "anthropic==2.14.0\n",
    "mcp==2.3.0\n",
    "prometheus_client==0.26.0\n",
    include_str!("../../../tests/moto.txt"),
);

/// Installs the packages unless an earlier run has, and returns their folder. Runs no installation
/// scripts.
pub(crate) fn install(cache: &Path) -> Result<PathBuf> {
    let list = format!("{}\n{PYTHON_PACKAGES}", NODE_PACKAGES.join("\n"));
    install_once(cache, "test-packages", &list, |folder| {
        let mut npm = Command::new("npm");
        npm.args([
            "install",
            "--no-audit",
            "--no-fund",
            "--no-update-notifier",
            "--ignore-scripts",
        ]);
        npm.arg("--prefix").arg(folder).args(NODE_PACKAGES);
        command::capture(&mut npm, "installing packages from npm")?;
        pip_install(&folder.join("python"), PYTHON_PACKAGES)
    })
}
