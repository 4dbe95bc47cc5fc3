//! The arguments of `bwrap`: namespaces, and a root that is built from parts of the host's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::view::View;
use crate::confine::{Content, SHARED_MEMORY_BYTES};

/// Where `bwrap` lies on most systems. Not looked for on PATH, which may lead into a workspace.
pub const BUBBLEWRAP_PROGRAMS: [&str; 3] =
    ["/usr/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap"];

/// Namespaces without capabilities.
pub(super) fn namespaces(keeps_namespaces_out: bool, network: bool) -> Vec<OsString> {
    let mut arguments = Arguments::default();
    if keeps_namespaces_out {
        arguments.add(["--unshare-user", "--disable-userns"]);
    } else {
        arguments.add(["--unshare-user-try"]);
    }
    // Not the control groups: what counts those who were out of memory is found by their names.
    arguments.add(["--unshare-ipc", "--unshare-pid", "--unshare-uts"]);
    if !network {
        arguments.add(["--unshare-net"]);
    }
    // The supervisor is the first process: a signal to it ends the server gently, and its end is that of everything.
    arguments.add(["--cap-drop", "ALL", "--as-pid-1", "--chdir", "/"]);
    arguments.0
}

/// What is seen: `/dev` and `/proc` of its own, and the view. Nothing else can be written to, so that no memory stays taken
/// by files in it.
pub(super) fn mounts(view: &View) -> Vec<OsString> {
    let mut arguments = Arguments::default();
    let shared_memory = SHARED_MEMORY_BYTES.to_string();
    arguments.add(["--dev", "/dev", "--perms", "1777", "--size", &shared_memory, "--tmpfs", "/dev/shm"]);
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
    // Now that everything has its place in them.
    let hidden = view.mounts().iter().filter(|mount| mount.content == Content::Hidden);
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
        self.0.extend(paths.iter().map(|path| PathBuf::from(path).into()));
    }
}
