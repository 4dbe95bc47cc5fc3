//! Paths with everything that is looked up to resolve them: a link on the way can be changed by whoever can write its folder.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::ops::Deref;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links on the way to a file, as for the kernel.
const MAX_LINKS: usize = 40;

/// An absolute path without links, and how it was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedPath {
    path: PathBuf,
    /// The path as it was named, and each folder and link that is looked up on the way to it. Only the last part of each
    /// can be a link.
    lookups: Vec<PathBuf>,
}

impl ResolvedPath {
    /// Resolves a path that a user named. It need not exist.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        let lookups = lookups(path)?;
        // A pipe of the shell's has no other name.
        let path = path.canonicalize().or_else(|_| std::path::absolute(path))?;
        Ok(Self { path, lookups })
    }

    /// Whether a program that can write this folder can make the name stand for another file.
    pub(crate) fn is_reached_through(&self, folder: &Path) -> bool {
        // The folder itself cannot be replaced from inside, unless it is a single file.
        let is_inside = |lookup: &Path| lookup.starts_with(folder) && lookup != folder;
        self.path == folder || self.lookups.iter().any(|lookup| is_inside(lookup))
    }

    /// Whether a link in this folder leads out of it to the file.
    pub(crate) fn leads_out_of(&self, folder: &Path) -> bool {
        self.is_reached_through(folder) && !self.path.starts_with(folder)
    }
}

impl Deref for ResolvedPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

/// The paths that the kernel looks up to resolve a path.
fn lookups(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut links) = (Vec::new(), 0);
    let mut current = std::env::current_dir()?;
    let mut rest: VecDeque<_> = parts(path).collect();
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            current.pop();
            continue;
        }
        // An absolute path starts with `/`, which replaces the rest.
        current.push(part);
        found.push(current.clone());
        let Ok(target) = current.read_link() else { continue };
        links += 1;
        if links > MAX_LINKS {
            break;
        }
        current.pop();
        parts(&target).rev().for_each(|part| rest.push_front(part));
    }
    Ok(found)
}

fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    parts.map(|part| part.as_os_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_and_link_on_the_way_to_a_file_counts() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for folder in ["own", "base/sub", "other"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("own/c.toml"), "").unwrap();
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        link("../own/c.toml", "base/c.toml");
        link("../../own", "base/sub/own");
        link("../base/sub", "other/sub");
        for (name, is_reached_through_base) in [
            ("own/c.toml", false),
            ("base/c.toml", true),
            ("base/sub/own/c.toml", true),
            ("other/sub/own/c.toml", true),
            ("base/../own/c.toml", false),
            ("other/../own/./c.toml", false),
        ] {
            let file = ResolvedPath::new(&root.join(name)).unwrap();
            assert_eq!(*file, *root.join("own/c.toml"));
            assert_eq!(file.leads_out_of(&root.join("base")), is_reached_through_base, "{name}");
            assert!(file.is_reached_through(&root.join("own")) && file.is_reached_through(&file));
        }
    }
}
