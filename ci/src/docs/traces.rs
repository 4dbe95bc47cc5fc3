//! Traces of where something was written: paths of one machine, hosts that packages were once downloaded from. Whoever
//! builds this has their own.

use std::path::Path;

/// Written in two parts, so that this file is none of its own findings.
const TRACES: &[&str] = &[
    concat!("/root", "/"),
    concat!("/work", "/"),
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("registry.npmjs", ".org"),
    concat!("deb.debian", ".org"),
];

/// Lock files name the registry by their format.
pub(super) fn is_ours_to_word(file: &Path) -> bool {
    !file.file_name().is_some_and(|name| name == "Cargo.lock" || name == "package-lock.json")
}

/// The first trace in `text`.
pub(super) fn find(text: &str) -> Option<&'static str> {
    TRACES.iter().copied().find(|trace| text.match_indices(trace).any(|(at, _)| begins_there(text, at)))
}

/// A folder of that name below another, or of another host, is somebody else's: a path of this machine begins with its slash.
fn begins_there(text: &str, at: usize) -> bool {
    let before = text[..at].chars().next_back();
    !text[at..].starts_with('/')
        || !before.is_some_and(|before| before.is_alphanumeric() || "._-~}>*/".contains(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_hosts_are_found() {
        assert!(find(concat!("see /wo", "rk/main/x")).is_some());
        assert!(find(concat!("https://index.crates", ".io/")).is_some());
    }

    #[test]
    fn a_folder_of_that_name_elsewhere_is_not_this_machines() {
        let elsewhere = concat!("/workspace/x and target/wo", "rk/x and rootfs/ro", "ot/");
        assert_eq!(find(elsewhere), None);
    }
}
