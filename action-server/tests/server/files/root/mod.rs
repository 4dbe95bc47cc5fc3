//! A server whose files are confined to a root: it works as usual there, and nothing outside is
//! read, reported or changed.

mod escapes;
mod ordinary;
mod races;
mod start;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use hyper::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::ask;
use crate::harness::{HttpReply, TestServer};

/// Part of every file and name outside.
const SECRET: &str = "SECRET";

/// A server with the working directory `BASE/root/WORK`, and the folder `BASE/outside`.
struct ConfinedServer {
    server: TestServer,
    base: TempDir,
}

impl ConfinedServer {
    fn start() -> Self {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir_all(base.path().join("root")).unwrap();
        fs::create_dir_all(base.path().join("outside/SECRET-folder")).unwrap();
        for name in ["SECRET-file", "f", "SECRET-folder/f"] {
            fs::write(base.path().join("outside").join(name), "SECRET content\n").unwrap();
        }
        let root = base.path().canonicalize().unwrap().join("root");
        let dir = TempDir::new_in(&root).unwrap();
        let server = TestServer::start_in(dir, None, &["--root", root.to_str().unwrap()]);
        Self { server, base }
    }

    fn root(&self) -> PathBuf {
        self.base.path().canonicalize().unwrap().join("root")
    }

    fn outside(&self) -> PathBuf {
        self.base.path().canonicalize().unwrap().join("outside")
    }

    /// Creates a link in the working directory.
    fn link(&self, target: impl AsRef<Path>, name: &str) {
        symlink(target, self.server.file(name)).unwrap();
    }

    async fn ask(&self, method: Method, path: &str, body: impl Into<bytes::Bytes>) -> HttpReply {
        ask(&self.server, method, path, &[], body).await
    }

    async fn post(&self, path: &str, body: Value) -> HttpReply {
        self.ask(Method::POST, path, body.to_string()).await
    }

    /// Returns the observation of a file action.
    async fn act(&self, action: Value) -> String {
        let observation = self
            .post("/execute_action", json!({"action": action}))
            .await;
        assert_eq!(observation.status, 200, "{:?}", observation.body);
        String::from_utf8(observation.body.to_vec()).unwrap()
    }

    /// Returns the state of the outside, except access times.
    fn outside_state(&self) -> Vec<String> {
        let mut seen = Vec::new();
        inspect(&self.outside(), &mut seen);
        seen.sort();
        seen
    }
}

fn inspect(path: &Path, seen: &mut Vec<String>) {
    let metadata = fs::symlink_metadata(path).unwrap();
    let content = if metadata.is_file() {
        fs::read(path).unwrap()
    } else {
        Vec::new()
    };
    let (mode, links) = (metadata.mode(), metadata.nlink());
    let changed = (metadata.ctime(), metadata.ctime_nsec());
    seen.push(format!(
        "{} {mode:o} {links} {changed:?} {content:?}",
        path.display()
    ));
    if metadata.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            inspect(&entry.unwrap().path(), seen);
        }
    }
}

/// Returns an archive of one file.
fn archive(name: &str, content: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(name), content).unwrap();
    let mut tar = std::process::Command::new("tar");
    tar.arg("cC")
        .arg(dir.path())
        .arg(name)
        .output()
        .unwrap()
        .stdout
}

fn is_in(needle: &str, haystack: &[u8]) -> bool {
    haystack
        .windows(needle.len())
        .any(|window| window == needle.as_bytes())
}
