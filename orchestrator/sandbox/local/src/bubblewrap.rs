//! The arguments of `bwrap`: namespaces, and a root that consists of parts of the host's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::view::View;
use crate::confine::{BubblewrapIsolation, Content, SHARED_MEMORY_BYTES};

/// Common paths of `bwrap`. PATH is not searched, because it may contain a workspace.
pub const BUBBLEWRAP_PROGRAMS: [&str; 3] = [
    "/usr/bin/bwrap",
    "/usr/local/bin/bwrap",
    "/run/current-system/sw/bin/bwrap",
];

/// Returns the isolation of a program that sees these files.
pub(super) fn isolation(
    program: &Path,
    prevents_namespaces: bool,
    network: bool,
    view: &View,
) -> BubblewrapIsolation {
    let arguments = [namespaces(prevents_namespaces, network), mounts(view)].concat();
    BubblewrapIsolation {
        program: program.to_owned(),
        arguments,
        network,
    }
}

/// Namespaces without capabilities.
fn namespaces(prevents_namespaces: bool, network: bool) -> Vec<OsString> {
    let mut arguments = Arguments::default();
    if prevents_namespaces {
        arguments.add(["--unshare-user", "--disable-userns"]);
    } else {
        arguments.add(["--unshare-user-try"]);
    }
    arguments.add([
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]);
    if !network {
        arguments.add(["--unshare-net"]);
    }
    // The supervisor is PID 1: a signal to it shuts the server down, and its exit kills all other
    // processes.
    arguments.add(["--cap-drop", "ALL", "--as-pid-1", "--chdir", "/"]);
    arguments.0
}

/// The visible files: own `/dev` and `/proc`, and the view. Nothing else is writable, so that no
/// files occupy memory.
fn mounts(view: &View) -> Vec<OsString> {
    let mut arguments = Arguments::default();
    let shared_memory = SHARED_MEMORY_BYTES.to_string();
    arguments.add([
        "--dev",
        "/dev",
        "--perms",
        "1777",
        "--size",
        &shared_memory,
        "--tmpfs",
        "/dev/shm",
    ]);
    arguments.add(["--proc", "/proc"]);
    for mount in view.mounts() {
        let path = &mount.path;
        match &mount.content {
            Content::Link(target) => arguments.mount("--symlink", &[target, path]),
            Content::Empty => arguments.mount("--dir", &[path]),
            Content::Hidden if path.is_dir() => arguments.mount("--tmpfs", &[path]),
            Content::Hidden => arguments.mount("--ro-bind", &[Path::new("/dev/null"), path]),
            Content::ReadOnly(source) => arguments.mount("--ro-bind-try", &[source, path]),
            Content::Writable(source) => arguments.mount("--bind", &[source, path]),
        }
    }
    // Read-only only after all mount points were created in them.
    let hidden = view
        .mounts()
        .iter()
        .filter(|mount| mount.content == Content::Hidden);
    for mount in hidden.filter(|mount| mount.path.is_dir()) {
        arguments.mount("--remount-ro", &[&mount.path]);
    }
    arguments.add(["--remount-ro", "/dev", "--remount-ro", "/"]);
    arguments.0
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn add<const COUNT: usize>(&mut self, words: [&str; COUNT]) {
        self.0.extend(words.map(OsString::from));
    }

    fn mount(&mut self, kind: &str, paths: &[&Path]) {
        self.0.push(kind.into());
        self.0
            .extend(paths.iter().map(|path| PathBuf::from(path).into()));
    }
}
