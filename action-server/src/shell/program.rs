//! Detects the shell of the machine and its properties, by names and links only. It does not run
//! any candidate.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

/// The shell language that a client can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShellKind {
    /// bash.
    Bash,
    /// A POSIX shell: dash, busybox ash, or another `/bin/sh`.
    Posix,
}

/// Differences between shells that matter to the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShellDialect {
    /// Started with `--noediting`: the kernel edits the line.
    Bash,
    /// The kernel edits the line. Descriptor numbers have one digit.
    Dash,
    /// The shell edits the line. It requires ECHO and queries the cursor position.
    Ash,
}

/// A shell that can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShellProgram {
    pub(super) path: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) dialect: ShellDialect,
}

impl ShellProgram {
    /// Finds the best shell on `search` (a `PATH`), or in `/bin`, because a container's `PATH` may
    /// be empty. If there is none, starting the result fails.
    pub(super) fn find(search: Option<&OsStr>) -> Self {
        let bash = find_executable("bash", search).or_else(|| executable("/bin/bash"));
        let posix = || find_executable("sh", search).or_else(|| executable("/bin/sh"));
        Self::at(bash.or_else(posix).unwrap_or_else(|| "/bin/sh".into()))
    }

    /// Returns the shell at `path`. The path is not replaced by the target of a link, because
    /// busybox depends on the name.
    pub(super) fn at(path: PathBuf) -> Self {
        let target = path.canonicalize().unwrap_or_else(|_| path.clone());
        let named = |path: &Path, name: &str| path.file_name().is_some_and(|file| file == name);
        if named(&target, "bash") {
            let arguments = [
                "--noprofile",
                "--norc",
                "--noediting",
                "+H",
                "+o",
                "history",
                "-i",
            ];
            return Self {
                path: target,
                arguments: arguments.map(Into::into).to_vec(),
                dialect: ShellDialect::Bash,
            };
        }
        let is_busybox = target
            .file_name()
            .is_some_and(|file| file.as_encoded_bytes().starts_with(b"busybox"));
        if !is_busybox {
            return Self {
                path,
                arguments: vec!["-i".into()],
                dialect: ShellDialect::Dash,
            };
        }
        let mut arguments = vec!["-i".into()];
        if !named(&path, "sh") && !named(&path, "ash") {
            arguments.insert(0, "ash".into());
        }
        Self {
            path,
            arguments,
            dialect: ShellDialect::Ash,
        }
    }

    /// Returns the arguments for an interactive terminal, or for a single command in one, which has
    /// the environment of an interactive shell too.
    pub(super) fn arguments_for_a_person(&self, command: Option<&str>) -> Vec<OsString> {
        // If busybox is called by its own name, the first argument is the applet.
        let applet = self
            .arguments
            .first()
            .filter(|first| *first == "ash")
            .cloned();
        let command = command.map(|command| ["-i".into(), "-c".into(), command.into()]);
        applet
            .into_iter()
            .chain(command.into_iter().flatten())
            .collect()
    }

    pub(super) fn kind(&self) -> ShellKind {
        match self.dialect {
            ShellDialect::Bash => ShellKind::Bash,
            ShellDialect::Dash | ShellDialect::Ash => ShellKind::Posix,
        }
    }
}

/// Returns the first executable with this name on `search`.
pub(super) fn find_executable(name: &str, search: Option<&OsStr>) -> Option<PathBuf> {
    std::env::split_paths(search?)
        .map(|folder| folder.join(name))
        .find_map(executable)
}

fn executable(path: impl Into<PathBuf>) -> Option<PathBuf> {
    let path = path.into();
    (path.is_file() && access(&path, AccessFlags::X_OK).is_ok()).then_some(path)
}
