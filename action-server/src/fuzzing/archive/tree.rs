//! What is in a folder, as values that can be compared.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// All below a folder, by its path there.
pub(super) type Tree = BTreeMap<PathBuf, Found>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Permission bits; of links, 0.
    pub(super) mode: u32,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    File(Vec<u8>),
    Link(PathBuf),
    /// A pipe or a device.
    Other,
}

pub(super) fn of(folder: &Path) -> Tree {
    let mut tree = Tree::new();
    add(&mut tree, folder, Path::new(""));
    tree
}

fn add(tree: &mut Tree, folder: &Path, below: &Path) {
    for entry in fs::read_dir(folder.join(below)).unwrap() {
        let below = below.join(entry.unwrap().file_name());
        let path = folder.join(&below);
        let metadata = fs::symlink_metadata(&path).unwrap();
        let kind = match metadata.file_type() {
            kind if kind.is_dir() => Kind::Folder,
            kind if kind.is_file() => Kind::File(fs::read(&path).unwrap()),
            kind if kind.is_symlink() => Kind::Link(fs::read_link(&path).unwrap()),
            _ => Kind::Other,
        };
        if kind == Kind::Folder {
            add(tree, folder, &below);
        }
        let mode = if metadata.is_symlink() { 0 } else { metadata.mode() & 0o7777 };
        tree.insert(below, Found { mode, kind });
    }
}
