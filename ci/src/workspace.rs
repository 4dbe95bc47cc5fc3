//! The workspace: its root, target folder, tracked files and `cargo` commands.

use std::cell::{Cell, OnceCell, RefCell};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::command;
use crate::downloads::Downloads;
use crate::metadata::CargoMetadata;

/// The workspace of the current directory.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    /// Time of compilation since it was last taken.
    compile_time: Cell<Duration>,
    is_built: OnceCell<()>,
    downloads: RefCell<Downloads>,
}

/// The small action server, relative to the target folder of its own.
const SMALL_SERVER: &str = "action-server/action-server";

impl Workspace {
    pub(crate) fn find() -> Result<Self> {
        let mut cargo = cargo();
        let metadata = CargoMetadata::read(
            cargo.args(["metadata", "--no-deps"]),
            "finding the workspace",
        )?;
        Ok(Self {
            root: metadata.workspace_root,
            target: metadata.target_directory,
            compile_time: Cell::default(),
            is_built: OnceCell::new(),
            downloads: RefCell::default(),
        })
    }

    /// Returns a `cargo` command at the root. Its builds use the size-optimized action server, as
    /// releases do.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = cargo();
        cargo
            .current_dir(&self.root)
            .env("GLOVEBOX_ACTION_SERVER_PROFILE", "action-server");
        cargo
    }

    /// Builds everything that the steps run: programs, tests and benchmarks, with the libraries
    /// compiled once for all of them.
    pub(crate) fn build(&self) -> Result<()> {
        if self.is_built.get().is_none() {
            self.select_small_server()?;
            let mut build = self.cargo();
            build.args(["build", "--workspace", "--all-targets", "--locked"]);
            self.compile(&mut build, "building all programs and tests")?;
            let _ = self.is_built.set(());
        }
        Ok(())
    }

    /// Runs a command that only compiles.
    pub(crate) fn compile(&self, cargo: &mut Command, operation: &str) -> Result<()> {
        let start = Instant::now();
        let result = command::stream(cargo, operation);
        self.compile_time
            .set(self.compile_time.get() + start.elapsed());
        result
    }

    /// Returns the time of compilation since the last call.
    pub(crate) fn take_compile_time(&self) -> Duration {
        self.compile_time.take()
    }

    /// Returns the path of a program in the debug build.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.target.join("debug").join(name)
    }

    /// Returns the path of a program in the release build.
    pub(crate) fn release_program(&self, name: &str) -> PathBuf {
        self.target.join("release").join(name)
    }

    /// Returns the path of the small action server after `build`.
    pub(crate) fn action_server(&self) -> PathBuf {
        self.target.join("action-server").join(SMALL_SERVER)
    }

    /// Removes the link of debug builds to an action server if it leads to another one than the
    /// small one. The next build then restores it.
    pub(crate) fn select_small_server(&self) -> Result<()> {
        let link = self.target.join("action-server/current");
        match std::fs::read_link(&link) {
            Ok(server) if !server.ends_with(SMALL_SERVER) => std::fs::remove_file(&link)
                .with_context(|| format!("cannot remove the link {}", link.display())),
            _ => Ok(()), // right, or missing
        }
    }

    /// Creates the folder of files that later runs reuse, or waits until it is filled. `cargo
    /// clean` removes it.
    pub(crate) fn cache(&self) -> Result<PathBuf> {
        self.downloads.borrow_mut().finish();
        self.cache_folder()
    }

    /// Starts to fill that folder.
    pub(crate) fn start_downloads(&self) -> Result<()> {
        self.downloads
            .replace(Downloads::start(self.cache_folder()?));
        Ok(())
    }

    /// Waits until nothing is downloaded any more.
    pub(crate) fn finish_downloads(&self) {
        self.downloads.borrow_mut().finish();
    }

    fn cache_folder(&self) -> Result<PathBuf> {
        let folder = self.target.join("ci");
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder)
    }

    /// Returns all existing files that git tracks or does not ignore, relative to the root.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>> {
        let mut git = Command::new("git");
        git.current_dir(&self.root).args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]);
        let names = command::capture(&mut git, "listing the repository's files")?;
        let files = names.split_terminator('\0').map(PathBuf::from);
        Ok(files
            .filter(|file| self.root.join(file).is_file())
            .collect())
    }

    pub(crate) fn read(&self, file: &Path) -> Result<String> {
        std::fs::read_to_string(self.root.join(file))
            .with_context(|| format!("cannot read {}", file.display()))
    }
}

/// Returns a `cargo` command without the package variables of `cargo run`. With them, build scripts
/// that watch these variables would run again after each build by hand.
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
