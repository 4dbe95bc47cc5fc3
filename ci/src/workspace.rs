//! The workspace: its root, target folder, tracked files and `cargo` commands.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command;
use crate::metadata::CargoMetadata;

/// The workspace of the current directory.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
}

/// Cargo profile of a built program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    Debug,
    Release,
}

impl Workspace {
    pub(crate) fn find() -> Result<Self> {
        let mut cargo = cargo();
        let metadata = CargoMetadata::read(cargo.args(["metadata", "--no-deps"]), "finding the workspace")?;
        Ok(Self { root: metadata.workspace_root, target: metadata.target_directory })
    }

    /// Returns a `cargo` command at the root. Its builds embed the size-optimized action server, as releases do.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = cargo();
        cargo.current_dir(&self.root).env("GLOVEBOX_ACTION_SERVER_PROFILE", "action-server");
        cargo
    }

    /// Returns the path of a program in the debug build.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.target.join("debug").join(name)
    }

    /// Builds `glovebox` with the embedded action server and returns its path.
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

    /// Returns the path of the action server after `build_program`.
    pub(crate) fn action_server(&self) -> PathBuf {
        self.target.join("action-server/action-server/action-server")
    }

    /// Creates the folder of files that later runs reuse. `cargo clean` removes it.
    pub(crate) fn cache(&self) -> Result<PathBuf> {
        let folder = self.target.join("ci");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder)
    }

    /// Returns all existing files that git tracks or does not ignore, relative to the root.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>> {
        let mut git = Command::new("git");
        git.current_dir(&self.root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let names = command::capture(&mut git, "listing the repository's files")?;
        let files = names.split_terminator('\0').map(PathBuf::from);
        Ok(files.filter(|file| self.root.join(file).is_file()).collect())
    }

    pub(crate) fn read(&self, file: &Path) -> Result<String> {
        std::fs::read_to_string(self.root.join(file))
            .with_context(|| format!("cannot read {}", file.display()))
    }
}

/// Returns a `cargo` command without the package variables of `cargo run`. With them, build scripts that watch these
/// variables would run again after each build by hand.
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
