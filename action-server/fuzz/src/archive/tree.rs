//! The files of a folder, as comparable values.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// All entries below a folder by relative path.
pub(super) type Tree = BTreeMap<PathBuf, TreeEntry>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TreeEntry {
    /// Permission bits; 0 for links.
    pub(super) mode: u32,
    pub(super) content: EntryContent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EntryContent {
    Folder,
    File(Vec<u8>),
    Link(PathBuf),
    /// A pipe or a device.
    Other,
}

pub(super) fn read(folder: &Path) -> Tree {
    let mut tree = Tree::new();
    add(&mut tree, folder, Path::new(""));
    tree
}

fn add(tree: &mut Tree, folder: &Path, below: &Path) {
    for entry in fs::read_dir(folder.join(below)).unwrap() {
        let below = below.join(entry.unwrap().file_name());
        let path = folder.join(&below);
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = match metadata.file_type() {
            kind if kind.is_dir() => EntryContent::Folder,
            kind if kind.is_file() => EntryContent::File(fs::read(&path).unwrap()),
            kind if kind.is_symlink() => EntryContent::Link(fs::read_link(&path).unwrap()),
            _ => EntryContent::Other,
        };
        if content == EntryContent::Folder {
            add(tree, folder, &below);
        }
        let mode = if metadata.is_symlink() {
            0
        } else {
            metadata.mode() & 0o7777
        };
        tree.insert(below, TreeEntry { mode, content });
    }
}
