//! Validates the names in an archive: they must be paths below its folder.

use std::path::{Component, Path, PathBuf};

/// Maximum length of a path that the system accepts.
const MAX_BYTES: usize = 4096;

/// Maximum depth. Every level uses one or two descriptors.
const MAX_LEVELS: usize = 128;

/// Returns the path of an entry without `.`, which is empty for the folder itself. An error is the
/// reason for a rejection.
pub(super) fn below(path: &Path) -> Result<PathBuf, String> {
    let refused = |problem: &str| Err(format!("entry `{}` {problem}", clip(path)));
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

/// Returns whether the target of a link at `below` is in the folder. `..` is only allowed at the
/// start of the target, where it refers to the link's own folder. After another component, which
/// may be a link, it could lead anywhere.
pub(super) fn link_stays_within(below: &Path, target: &Path) -> bool {
    let mut levels = below.components().count().saturating_sub(1);
    let mut is_start = true;
    target.components().all(|component| match component {
        Component::CurDir => true,
        Component::ParentDir if is_start && levels > 0 => {
            levels -= 1;
            true
        }
        Component::Normal(_) => {
            is_start = false;
            true
        }
        Component::ParentDir | Component::RootDir | Component::Prefix(_) => false,
    })
}

/// Clips a hostile name for an error message.
pub(super) fn clip(path: &Path) -> String {
    path.to_string_lossy().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_rejected_when_it_leads_out_of_the_folder() {
        assert_eq!(below(Path::new("./a/./b/")), Ok(PathBuf::from("a/b")));
        assert_eq!(below(Path::new(".")), Ok(PathBuf::new()));
        for hostile in ["/a", "..", "a/../b", "a/..", "./../a"] {
            assert!(below(Path::new(hostile)).is_err(), "{hostile}");
        }
        assert!(below(Path::new(&"a/".repeat(300))).is_err());
        assert!(below(Path::new(&"a".repeat(5000))).is_err());
    }

    #[test]
    fn link_is_rejected_when_it_leads_out_of_the_folder() {
        let stays =
            |below: &str, target: &str| link_stays_within(Path::new(below), Path::new(target));
        assert!(stays("a", "b/c") && stays("a/b/c", "../../d") && stays("a", "."));
        for (below, target) in [
            ("a", "/etc"),
            ("a", ".."),
            ("a/b", "../.."),
            ("a/b/c", "x/../y"),
            ("a/b", "./../../x"),
        ] {
            assert!(!stays(below, target), "{below} -> {target}");
        }
    }
}
