//! Maps inotify's watch descriptors to folders.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use nix::sys::inotify::WatchDescriptor;

/// The watched folders. Their paths are relative to the watched root, whose path is empty.
#[derive(Debug, Default)]
pub(super) struct WatchedFolders(HashMap<WatchDescriptor, PathBuf>);

impl WatchedFolders {
    pub(super) fn insert(&mut self, watch: WatchDescriptor, below: PathBuf) {
        self.0.insert(watch, below);
    }

    pub(super) fn get(&self, watch: WatchDescriptor) -> Option<&PathBuf> {
        self.0.get(&watch)
    }

    pub(super) fn remove(&mut self, watch: WatchDescriptor) {
        self.0.remove(&watch);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Updates the paths of a folder and of all folders in it.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        for below in self.0.values_mut() {
            if let Ok(rest) = below.strip_prefix(from) {
                *below = if rest.as_os_str().is_empty() {
                    to.to_owned()
                } else {
                    to.join(rest)
                };
            }
        }
    }

    /// Removes a folder and all folders in it. Returns their watch descriptors.
    pub(super) fn remove_below(&mut self, folder: &Path) -> Vec<WatchDescriptor> {
        self.0
            .extract_if(|_, below| below.starts_with(folder))
            .map(|(watch, _)| watch)
            .collect()
    }
}
