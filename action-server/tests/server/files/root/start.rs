//! Requirements of the root, checked before the server starts.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::harness::program;

/// Returns the error of a server that does not start.
fn refused(root: &str, working_dir: &Path, dir: &Path) -> String {
    let mut command = program();
    command
        .args(["serve", "--root", root, "--socket"])
        .arg(dir.join("run/s"))
        .arg("--working-dir");
    let ended = command
        .arg(working_dir)
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(!dir.join("run/s").exists());
    String::from_utf8(ended.stderr).unwrap()
}

#[test]
fn start_fails_when_the_root_cannot_be_enforced() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("root/inside")).unwrap();
    fs::create_dir(at("root-adjacent")).unwrap();
    fs::write(at("file"), "").unwrap();
    std::os::unix::fs::symlink("../root-adjacent", at("root/out")).unwrap();
    for (root, working_dir, problem) in [
        ("root", "root-adjacent", "is not beneath the root"),
        ("root", ".", "is not beneath the root"),
        ("root", "root/out", "is not beneath the root"),
        ("root", "missing", "cannot open the working directory"),
        ("missing", "root", "cannot open the root missing"),
        ("file", "root", "cannot open the root file"),
    ] {
        let stderr = refused(root, &at(working_dir), dir.path());
        assert!(stderr.contains(problem), "{root} {working_dir}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}
