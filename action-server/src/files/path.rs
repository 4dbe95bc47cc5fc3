//! From the path that an action names to the file that is meant. Never changes anything.

use std::fs;
use std::path::{Path, PathBuf};

/// As the kernel: a chain of links longer than this is a loop.
pub(super) const MAX_LINKS: usize = 40;

/// Absolute; relative paths begin at the shell's working directory. `..` is left to the system, which knows the links.
pub(crate) fn resolve(path: &str, working_dir: &Path) -> PathBuf {
    working_dir.join(path).components().collect()
}

/// The file behind links, so that a link is kept and its target replaced; also when the target does not exist yet.
pub(super) fn follow(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        if let Ok(target) = fs::canonicalize(&path) {
            return target;
        }
        match (fs::read_link(&path), path.parent()) {
            (Ok(target), Some(parent)) => path = parent.join(target),
            _ => break,
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn relative_paths_begin_at_the_working_directory() {
        let resolved = |path| resolve(path, Path::new("/workspace"));
        assert_eq!(resolved("a/./b"), Path::new("/workspace/a/b"));
        assert_eq!(resolved("/etc//passwd"), Path::new("/etc/passwd"));
        assert_eq!(resolved("../x"), Path::new("/workspace/../x"));
        assert_eq!(resolved(""), Path::new("/workspace"));
    }

    #[test]
    fn links_are_followed_also_into_nothing_and_round_in_circles() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name);
        symlink("missing", at("dangling")).unwrap();
        symlink("circle", at("circle")).unwrap();
        assert_eq!(follow(&at("dangling")), at("missing"));
        assert_eq!(follow(&at("circle")), at("circle"));
    }
}
