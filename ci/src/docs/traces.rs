//! Traces of the author's machine: its paths, and the hosts of the package registries it used. They
//! mean nothing on another machine.

use std::path::Path;

/// Forbidden texts. Each is written in two parts, so that this file does not contain them.
const TRACES: &[&str] = &[
    concat!("/root", "/"),
    concat!("/work", "/"),
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("registry.npmjs", ".org"),
    concat!("deb.debian", ".org"),
];

/// Whether the file is checked. Lock files are not, because their format includes the registry's
/// address.
pub(super) fn is_checked(file: &Path) -> bool {
    !file
        .file_name()
        .is_some_and(|name| name == "Cargo.lock" || name == "package-lock.json")
}

/// Returns the first trace in `text`.
pub(super) fn find(text: &str) -> Option<&'static str> {
    TRACES.iter().copied().find(|trace| {
        text.match_indices(trace)
            .any(|(at, _)| is_trace_at(text, at))
    })
}

/// Whether the match at `at` is a trace. A path is one only if it is absolute, not if it is part of
/// a longer path or a URL.
fn is_trace_at(text: &str, at: usize) -> bool {
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
    fn path_is_no_trace_when_part_of_a_longer_path() {
        let elsewhere = concat!("/workspace/x and target/wo", "rk/x and rootfs/ro", "ot/");
        assert_eq!(find(elsewhere), None);
    }
}
