//! A folder for one input. It is left when the input found something.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

/// Removed when dropped.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn make() -> Self {
        // As long in every run, or the runs would differ.
        let folder = std::env::temp_dir().join(format!("glovebox-fuzz-{:010}", std::process::id()));
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !thread::panicking() {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }
}
