//! Which paths and links of an archive stay in the folder that it is of. Pure.

use std::path::{Component, Path, PathBuf};

/// Longer is no path that a system takes.
const MAX_BYTES: usize = 4096;

/// Every level costs a descriptor.
const MAX_LEVELS: usize = 128;

/// An entry's path without `.`; empty for the folder itself. Nothing for one that is not below.
pub(super) fn below(path: &Path) -> Option<PathBuf> {
    let mut below = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => below.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (path.as_os_str().len() <= MAX_BYTES && below.components().count() <= MAX_LEVELS).then_some(below)
}

/// Whether a link at `below` that leads to `target` leads to something in the folder. `..` is taken only at the beginning,
/// where it leads up from folders that were made as such: behind a name it leads up from wherever that leads.
pub(super) fn stays(below: &Path, target: &Path) -> bool {
    let ups = target.components().take_while(|part| !matches!(part, Component::Normal(_)));
    let ups: Vec<_> = ups.filter(|part| *part != Component::CurDir).collect();
    let names = target.components().skip_while(|part| !matches!(part, Component::Normal(_)));
    let depth = below.components().count().saturating_sub(1);
    ups.len() <= depth
        && ups.iter().all(|part| *part == Component::ParentDir)
        && names.into_iter().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        && !target.as_os_str().is_empty()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{below, stays};

    #[test]
    fn only_paths_below_are_taken() {
        assert_eq!(below(Path::new("./a/./b/")), Some(PathBuf::from("a/b")));
        assert_eq!(below(Path::new(".")), Some(PathBuf::new()));
        for hostile in ["/a", "..", "a/../b", "./../a"] {
            assert_eq!(below(Path::new(hostile)), None, "{hostile}");
        }
        assert_eq!(below(Path::new(&"a/".repeat(200))), None);
        assert_eq!(below(Path::new(&"a".repeat(5000))), None);
    }

    #[test]
    fn only_links_that_stay_are_taken() {
        for (link, target) in [("a", "b/c"), ("a/b/c", "../../d"), ("a/b", "../c"), ("a", ".")] {
            assert!(stays(Path::new(link), Path::new(target)), "{link} -> {target}");
        }
        for (link, target) in [
            ("a", "/etc"),
            ("a", ".."),
            ("a/b", "../.."),
            ("a/b/c", "x/../y"),
            ("a/b", "./../../x"),
            ("a", ""),
        ] {
            assert!(!stays(Path::new(link), Path::new(target)), "{link} -> {target}");
        }
    }
}
