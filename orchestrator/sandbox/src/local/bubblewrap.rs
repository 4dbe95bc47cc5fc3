//! The arguments of `bwrap`: the same host, read-only, with holes and with places to write.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::view::View;

/// Where `bwrap` lies on most systems. Not looked for on PATH, which may lead into a workspace.
pub const BUBBLEWRAP_PROGRAMS: [&str; 3] =
    ["/usr/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap"];

/// What of `/proc` root's user id alone may write to, capabilities or not: there the host's kernel is told what to run.
const KERNEL_SETTINGS: [&str; 5] = ["/proc/sys", "/proc/fs", "/proc/irq", "/proc/bus", "/proc/sysrq-trigger"];

/// Namespaces, no capabilities, and the host's files read-only with `/dev` and `/proc` of its own.
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
    arguments.add(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
    for settings in KERNEL_SETTINGS.iter().filter(|path| Path::new(path).exists()) {
        arguments.add(["--ro-bind", settings, settings]);
    }
    arguments.0
}

/// The sandbox's own view, over what [`namespaces`] makes. The folder `temporary` is at its `/tmp`.
pub(super) fn mounts(view: &View, temporary: &Path) -> Vec<OsString> {
    let mut mounts: Vec<(&Path, Mount<'_>)> = Vec::new();
    mounts.extend(view.hidden.iter().map(|path| (path.as_path(), Mount::Hidden)));
    mounts.extend(view.temporary.iter().map(|path| (path.as_path(), Mount::Writable(temporary))));
    mounts.extend(view.readable.iter().map(|path| (path.as_path(), Mount::ReadOnly)));
    mounts.extend(view.writable.iter().map(|path| (path.as_path(), Mount::Writable(path))));
    // Folders before what lies in them. The sort is stable: of two on the same path the later is seen.
    mounts.sort_by_key(|(path, _)| path.components().count());
    let mut arguments = Arguments::default();
    for (path, mount) in &mounts {
        match mount {
            Mount::Hidden if is_hidden_already(path, &mounts) => {}
            Mount::Hidden if path.is_dir() => arguments.mount("--tmpfs", &[path]),
            Mount::Hidden => arguments.mount("--ro-bind", &[Path::new("/dev/null"), path]),
            Mount::ReadOnly => arguments.mount("--ro-bind", &[path, path]),
            Mount::Writable(source) => arguments.mount("--bind", &[source, path]),
        }
    }
    // Now that everything has its place in them.
    for (path, mount) in &mounts {
        if matches!(mount, Mount::Hidden) && path.is_dir() && !is_hidden_already(path, &mounts) {
            arguments.mount("--remount-ro", &[path]);
        }
    }
    arguments.0
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mount<'a> {
    Hidden,
    ReadOnly,
    Writable(&'a Path),
}

/// Whether the nearest that is mounted above it, or over it, shows nothing of it.
fn is_hidden_already(path: &Path, mounts: &[(&Path, Mount<'_>)]) -> bool {
    let over = mounts.iter().rev().find(|(other, _)| *other == path);
    if over.is_some_and(|(_, mount)| *mount != Mount::Hidden) {
        return true;
    }
    let above = mounts.iter().rev().find(|(above, _)| path != *above && path.starts_with(above));
    above.is_some_and(|(above, mount)| match mount {
        Mount::Hidden => true,
        Mount::ReadOnly => false,
        Mount::Writable(source) => source != above,
    })
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

/// Whether bubblewrap failed because a mount of the host's came or went while it copied them all.
pub(super) fn met_another_mount(said: &str) -> bool {
    said.starts_with("bwrap: Can't bind mount /oldroot/ ") && said.contains("Unable to apply mount flags")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::view::View;
    use super::{met_another_mount, mounts};

    #[test]
    fn what_is_deeper_is_mounted_later_and_what_is_hidden_already_is_not_hidden_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for path in ["home/me/state/secret", "home/me/.ssh", "tmp", "own"] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        let view = View {
            hidden: ["home", "home/me/.ssh", "home/me/state"].map(|path| root.join(path)).into(),
            temporary: vec![root.join("tmp")],
            readable: Vec::new(),
            writable: vec![root.join("home/me/state/work"), root.join("tmp/work")],
        };
        let told = |view: &View| {
            let arguments = mounts(view, &root.join("own"));
            let arguments = arguments.iter().map(|word| {
                Path::new(word).strip_prefix(&root).unwrap_or(Path::new(word)).to_str().unwrap().to_owned()
            });
            arguments.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            told(&view),
            "--tmpfs home --bind own tmp --bind tmp/work tmp/work --bind home/me/state/work home/me/state/work \
             --remount-ro home"
        );
        let at_home = View { writable: vec![root.join("home/me")], ..view };
        assert_eq!(
            told(&at_home),
            "--tmpfs home --bind own tmp --bind home/me home/me --tmpfs home/me/.ssh --tmpfs home/me/state \
             --remount-ro home --remount-ro home/me/.ssh --remount-ro home/me/state"
        );
    }

    #[test]
    fn a_start_that_another_mount_came_across_is_told_from_one_that_cannot_be() {
        let said = "bwrap: Can't bind mount /oldroot/ on /newroot/: Unable to apply mount flags: remount \
                    \"/newroot/var/lib/docker/overlay2/05/merged\": Invalid argument\n";
        assert!(met_another_mount(said));
        assert!(!met_another_mount("bwrap: Can't find source path /nowhere: No such file or directory\n"));
        assert!(!met_another_mount("Unable to apply mount flags"));
    }
}
