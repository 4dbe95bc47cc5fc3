//! A folder for one input, kept if the input is a finding.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// A temporary folder, removed on drop unless the thread panics.
pub(super) struct FuzzFolder(PathBuf);

impl FuzzFolder {
    pub(super) fn create() -> Self {
        // The name has the same length in every run, so that runs do not differ. Tests run in
        // several threads.
        static CREATED: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), CREATED.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("glovebox-fuzz-{process:010}-{number:010}"));
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

impl Drop for FuzzFolder {
    fn drop(&mut self) {
        if !thread::panicking() {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }
}
