//! The names in an archive, read as what they may be: paths below its folder.

use std::path::{Component, Path, PathBuf};

/// Longer is no path that a system takes.
const MAX_BYTES: usize = 4096;

/// Every level costs a descriptor or two.
const MAX_LEVELS: usize = 128;

/// The path of an entry without `.`; empty for the folder itself. Or why it is refused.
pub(super) fn below(path: &Path) -> Result<PathBuf, String> {
    let refused = |problem: &str| Err(format!("entry `{}` {problem}", shown(path)));
    let mut below = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => below.push(name),
            Component::CurDir => {}
            Component::ParentDir => return refused("has `..` in its path"),
            Component::RootDir | Component::Prefix(_) => return refused("has an absolute path"),
        }
    }
    if path.as_os_str().len() > MAX_BYTES || below.components().count() > MAX_LEVELS {
        return refused("has a path that is too long");
    }
    Ok(below)
}

/// Whether a link at `below` with this target stays in the folder. `..` is taken only at the target's beginning: there
/// it leads up from the link's own folder, which is none that a link leads to; later it could lead up from anywhere.
pub(super) fn link_stays_within(below: &Path, target: &Path) -> bool {
    let mut levels = below.components().count().saturating_sub(1);
    let mut is_beginning = true;
    target.components().all(|component| match component {
        Component::CurDir => true,
        Component::ParentDir if is_beginning && levels > 0 => {
            levels -= 1;
            true
        }
        Component::Normal(_) => {
            is_beginning = false;
            true
        }
        Component::ParentDir | Component::RootDir | Component::Prefix(_) => false,
    })
}

/// A hostile name, as an error tells it.
pub(super) fn shown(path: &Path) -> String {
    path.to_string_lossy().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_are_taken() {
        assert_eq!(below(Path::new("./a/./b/")), Ok(PathBuf::from("a/b")));
        assert_eq!(below(Path::new(".")), Ok(PathBuf::new()));
        for hostile in ["/a", "..", "a/../b", "a/..", "./../a"] {
            assert!(below(Path::new(hostile)).is_err(), "{hostile}");
        }
        assert!(below(Path::new(&"a/".repeat(300))).is_err());
        assert!(below(Path::new(&"a".repeat(5000))).is_err());
    }

    #[test]
    fn only_links_that_stay_are_taken() {
        let stays = |below: &str, target: &str| link_stays_within(Path::new(below), Path::new(target));
        assert!(stays("a", "b/c") && stays("a/b/c", "../../d") && stays("a", "."));
        for (below, target) in
            [("a", "/etc"), ("a", ".."), ("a/b", "../.."), ("a/b/c", "x/../y"), ("a/b", "./../../x")]
        {
            assert!(!stays(below, target), "{below} -> {target}");
        }
    }
}
