//! Paths with every lookup of their resolution: a program that can write the folder of a link can
//! redirect the path.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::ops::Deref;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links on the way to a file, as for the kernel.
const MAX_LINKS: usize = 40;

/// An absolute path without links, and the lookups that resolved it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedPath {
    path: PathBuf,
    /// Every path that the resolution looks up: folders, links and the file. Only the last
    /// component of each can be a link.
    lookups: Vec<PathBuf>,
}

impl ResolvedPath {
    /// Resolves a path that a user named. It need not exist.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        let lookups = lookups(path)?;
        // An anonymous pipe cannot be resolved.
        let path = path.canonicalize().or_else(|_| std::path::absolute(path))?;
        Ok(Self { path, lookups })
    }

    /// Whether a program that can write this folder can redirect the path to another file.
    pub(crate) fn is_reached_through(&self, folder: &Path) -> bool {
        // A folder cannot be replaced from inside. The first condition below covers a mounted
        // single file.
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

/// Lists the paths that the kernel looks up to resolve a path.
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
        let Ok(target) = current.read_link() else {
            continue;
        };
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
    fn path_is_reached_through_each_folder_and_link_of_its_lookup() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for folder in ["own", "base/sub", "other"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("own/c.toml"), "").unwrap();
        let link =
            |target: &str, name: &str| std::os::unix::fs::symlink(target, root.join(name)).unwrap();
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
            assert_eq!(
                file.leads_out_of(&root.join("base")),
                is_reached_through_base,
                "{name}"
            );
            assert!(file.is_reached_through(&root.join("own")) && file.is_reached_through(&file));
        }
    }
}
