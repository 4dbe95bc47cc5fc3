//! Packages from npm and PyPI that `cargo ci` installs for the tests of several crates.

use std::env;
use std::path::{Path, PathBuf};

use crate::skip::{Requirement, skip, skip_without};

/// Returns the folder of modules for Node.js. `None`, and the test is skipped, without `cargo ci`
/// or Node.js.
pub(crate) fn npm_packages() -> Option<PathBuf> {
    packages("node", Requirement::NpmPackages, "node_modules")
}

/// Returns a folder for Python's path. `None`, and the test is skipped, without `cargo ci` or
/// Python.
pub(crate) fn pypi_packages() -> Option<PathBuf> {
    packages("python3", Requirement::PypiPackages, "python")
}

fn packages(program: &'static str, needed: Requirement, folder: &str) -> Option<PathBuf> {
    if skip_without(program) {
        return None;
    }
    let packages =
        env::var_os("GLOVEBOX_TEST_PACKAGES").map(|packages| Path::new(&packages).join(folder));
    let packages = packages.filter(|packages| packages.is_dir());
    if packages.is_none() {
        skip(needed, "cargo ci installs them");
    }
    packages
}
