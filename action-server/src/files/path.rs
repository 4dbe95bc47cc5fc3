//! Resolves the paths of actions.

use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of links, as in the kernel. Longer chains are loops.
pub(super) const MAX_LINKS: usize = 40;

/// Makes a path absolute. A relative path refers to the shell's working directory, and `~` to
/// `home`, as in a shell: a model that writes it means no folder of that name. `..` is not removed,
/// because its meaning depends on links.
pub(super) fn resolve(path: &str, working_dir: &Path, home: &Path) -> PathBuf {
    let path = match path.strip_prefix('~') {
        Some(below) if below.is_empty() || below.starts_with('/') => {
            &home.join(below.trim_start_matches('/'))
        }
        _ => Path::new(path),
    };
    working_dir.join(path).components().collect()
}

/// Follows links, so that the target is replaced and not the link. The target need not exist.
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
    fn relative_path_refers_to_the_working_directory() {
        let resolved = |path| resolve(path, Path::new("/workspace"), Path::new("/home/me"));
        assert_eq!(resolved("a/./b"), Path::new("/workspace/a/b"));
        assert_eq!(resolved("/etc//passwd"), Path::new("/etc/passwd"));
        assert_eq!(resolved("../x"), Path::new("/workspace/../x"));
        assert_eq!(resolved(""), Path::new("/workspace"));
    }

    #[test]
    fn tilde_refers_to_the_home() {
        let resolved = |path| resolve(path, Path::new("/workspace"), Path::new("/home/me"));
        assert_eq!(resolved("~"), Path::new("/home/me"));
        assert_eq!(resolved("~/a/b"), Path::new("/home/me/a/b"));
        assert_eq!(resolved("~//etc"), Path::new("/home/me/etc"));
        assert_eq!(resolved("./~/a"), Path::new("/workspace/~/a"));
        assert_eq!(resolved("~$draft"), Path::new("/workspace/~$draft"));
        assert_eq!(resolved("a~"), Path::new("/workspace/a~"));
    }

    #[test]
    fn follow_ends_when_a_link_is_dangling_or_a_loop() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name);
        symlink("missing", at("dangling")).unwrap();
        symlink("circle", at("circle")).unwrap();
        assert_eq!(follow(&at("dangling")), at("missing"));
        assert_eq!(follow(&at("circle")), at("circle"));
    }
}
