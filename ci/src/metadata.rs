//! Packages and their declared dependencies from `cargo metadata`. Only the fields that a check
//! reads.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::command;

#[derive(Debug, Deserialize)]
pub(crate) struct CargoMetadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) workspace_root: PathBuf,
    pub(crate) target_directory: PathBuf,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: semver::Version,
    pub(crate) license: Option<String>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    #[serde(default)]
    pub(crate) targets: Vec<Target>,
}

/// What is compiled from one root file.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: PathBuf,
}

impl Target {
    pub(crate) fn is_program_or_library(&self) -> bool {
        self.kind.iter().any(|kind| kind == "lib" || kind == "bin")
    }
}

/// One line of a manifest's dependency tables.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Option<DependencyKind>,
    pub(crate) features: Vec<String>,
}

/// Kind of a dependency. Cargo omits it for a normal dependency.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DependencyKind {
    Dev,
    Build,
}

impl CargoMetadata {
    /// Runs `cargo`, a `cargo metadata` command, and parses its output.
    pub(crate) fn read(cargo: &mut Command, operation: &str) -> Result<Self> {
        let json = command::capture(cargo.args(["--format-version", "1"]), operation)?;
        serde_json::from_str(&json)
            .with_context(|| format!("{operation}: cannot parse the output of cargo metadata"))
    }

    /// Returns the packages of this workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| self.workspace_members.contains(&package.id))
    }
}
