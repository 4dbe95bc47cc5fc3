//! Checks whether paths and links of an archive stay within its folder. Pure.

use std::path::{Component, Path, PathBuf};

/// Maximum length of a path (`PATH_MAX`).
const MAX_PATH_BYTES: usize = 4096;

/// Maximum depth of a path.
const MAX_LEVELS: usize = 128;

/// Returns an entry's path without `.`; empty for the folder itself. `None` if the path leads out
/// of the folder, or is too long.
pub(super) fn below(path: &Path) -> Option<PathBuf> {
    let mut below = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => below.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (path.as_os_str().len() <= MAX_PATH_BYTES && below.components().count() <= MAX_LEVELS)
        .then_some(below)
}

/// Returns whether the target of the link at `below` is within the folder. `..` is accepted only at
/// the start of the target, where it refers to real folders: after a name, which may be a link, it
/// could lead anywhere.
pub(super) fn stays(below: &Path, target: &Path) -> bool {
    let ups = target
        .components()
        .take_while(|part| !matches!(part, Component::Normal(_)));
    let ups: Vec<_> = ups.filter(|part| *part != Component::CurDir).collect();
    let names = target
        .components()
        .skip_while(|part| !matches!(part, Component::Normal(_)));
    let depth = below.components().count().saturating_sub(1);
    ups.len() <= depth
        && ups.iter().all(|part| *part == Component::ParentDir)
        && names
            .into_iter()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        && !target.as_os_str().is_empty()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{below, stays};

    #[test]
    fn path_is_refused_when_it_is_not_below_the_folder() {
        assert_eq!(below(Path::new("./a/./b/")), Some(PathBuf::from("a/b")));
        assert_eq!(below(Path::new(".")), Some(PathBuf::new()));
        for hostile in ["/a", "..", "a/../b", "./../a"] {
            assert_eq!(below(Path::new(hostile)), None, "{hostile}");
        }
        assert_eq!(below(Path::new(&"a/".repeat(200))), None);
        assert_eq!(below(Path::new(&"a".repeat(5000))), None);
    }

    #[test]
    fn link_is_refused_when_it_leads_out_of_the_folder() {
        for (link, target) in [
            ("a", "b/c"),
            ("a/b/c", "../../d"),
            ("a/b", "../c"),
            ("a", "."),
        ] {
            assert!(
                stays(Path::new(link), Path::new(target)),
                "{link} -> {target}"
            );
        }
        for (link, target) in [
            ("a", "/etc"),
            ("a", ".."),
            ("a/b", "../.."),
            ("a/b/c", "x/../y"),
            ("a/b", "./../../x"),
            ("a", ""),
        ] {
            assert!(
                !stays(Path::new(link), Path::new(target)),
                "{link} -> {target}"
            );
        }
    }
}
