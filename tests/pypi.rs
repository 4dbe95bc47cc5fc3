//! Programs from PyPI for the tests of several crates, installed once in the target folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::skip::{Requirement, skip, skip_without};

/// Returns a folder for Python's path with these `requirements`, installed by pip with these
/// options.
///
/// Installs only with `CI=true`, as on build machines. Otherwise `None`, and the test is skipped,
/// if they are not installed.
pub(crate) fn packages(name: &str, requirements: &str, options: &[&str]) -> Option<PathBuf> {
    if skip_without("python3") {
        return None;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let packages = folder.join(name);
    let is_installed = |packages: &Path| {
        fs::read_to_string(packages.join("requirements.txt")).is_ok_and(|list| list == requirements)
    };
    if is_installed(&packages) {
        return Some(packages);
    }
    if std::env::var("CI").as_deref() != Ok("true") {
        let reason = format!("{name} is not installed; once with CI=true, this test installs it");
        skip(Requirement::PypiPackages, reason);
        return None;
    }
    // Tests are separate processes, and only one of them installs.
    let lock = fs::File::create(folder.join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    if is_installed(&packages) {
        return Some(packages);
    }
    let draft = tempfile::tempdir_in(folder).unwrap();
    let (list, target) = (
        draft.path().join("requirements.txt"),
        draft.path().join("packages"),
    );
    fs::write(&list, requirements).unwrap();
    let installing = Command::new("python3")
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--only-binary",
            ":all:",
        ])
        .args(options)
        .arg("--target")
        .arg(&target)
        .arg("--requirement")
        .arg(&list)
        .status()
        .unwrap();
    assert!(installing.success(), "installing {name}: {installing}");
    fs::rename(&list, target.join("requirements.txt")).unwrap(); // marks the folder as complete
    let _ = fs::remove_dir_all(&packages);
    fs::rename(&target, &packages).unwrap();
    Some(packages)
}
