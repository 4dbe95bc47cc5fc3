//! Where things are: the repository's root, the target folder, the tracked files. And `cargo`, as a user would call it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command;
use crate::metadata::Metadata;

/// The workspace that `cargo ci` was called in.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
}

/// Cargo's profiles that programs are built with here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    Debug,
    Release,
}

impl Workspace {
    pub(crate) fn find() -> Result<Self> {
        let mut cargo = cargo();
        let metadata = Metadata::read(cargo.args(["metadata", "--no-deps"]), "looking for the workspace")?;
        Ok(Self { root: metadata.workspace_root, target: metadata.target_directory })
    }

    /// `cargo` at the root. Everything it builds embeds the small action server, so that the tests run what is released.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = cargo();
        cargo.current_dir(&self.root).env("GLOVEBOX_ACTION_SERVER_PROFILE", "action-server");
        cargo
    }

    /// Where a debug build puts a program.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.target.join("debug").join(name)
    }

    /// Builds the host's program, and with it the static action server that it carries.
    pub(crate) fn build_program(&self, profile: Profile) -> Result<PathBuf> {
        let mut build = self.cargo();
        build.args(["build", "--locked", "--package", "orchestrator", "--bin", "glovebox"]);
        let folder = match profile {
            Profile::Debug => "debug",
            Profile::Release => {
                build.arg("--release");
                "release"
            }
        };
        command::stream(&mut build, "building glovebox")?;
        Ok(self.target.join(folder).join("glovebox"))
    }

    /// Where that build leaves the action server.
    pub(crate) fn action_server(&self) -> PathBuf {
        self.target.join("action-server/action-server/action-server")
    }

    /// What a later run may use again; inside the target folder, so `cargo clean` removes it.
    pub(crate) fn cache(&self) -> Result<PathBuf> {
        let folder = self.target.join("ci");
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        Ok(folder)
    }

    /// Tracked files and new ones that are not ignored, relative to the root, of those that exist.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>> {
        let mut git = Command::new("git");
        git.current_dir(&self.root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let names = command::capture(&mut git, "listing the repository's files")?;
        let files = names.split_terminator('\0').map(PathBuf::from);
        Ok(files.filter(|file| self.root.join(file).is_file()).collect())
    }

    pub(crate) fn read(&self, file: &Path) -> Result<String> {
        std::fs::read_to_string(self.root.join(file)).with_context(|| format!("reading {}", file.display()))
    }
}

/// Without what `cargo run` told us about our own package: build scripts that watch those variables would run again
/// whenever the same crate is built by hand in between.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    cargo
}
