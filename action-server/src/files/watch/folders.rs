//! Which folder the kernel means by its number.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use nix::sys::inotify::WatchDescriptor;

/// Paths are below the folder that was asked for; its own is empty.
#[derive(Debug, Default)]
pub(super) struct Folders(HashMap<WatchDescriptor, PathBuf>);

impl Folders {
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

    /// The folder itself, if it is one, and all below it have another path now.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        for below in self.0.values_mut() {
            if let Ok(rest) = below.strip_prefix(from) {
                *below = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
            }
        }
    }

    /// Forgets the folder itself and all below it.
    pub(super) fn take_below(&mut self, folder: &Path) -> Vec<WatchDescriptor> {
        let taken: Vec<_> =
            self.0.iter().filter(|(_, below)| below.starts_with(folder)).map(|(watch, _)| *watch).collect();
        for watch in &taken {
            self.0.remove(watch);
        }
        taken
    }
}
