//! Which shell this machine has, and how it is spoken to.
//!
//! Looks at names and links only: it never runs a candidate to ask what it is.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

/// What a client can expect of the shell's language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShellKind {
    /// bash.
    Bash,
    /// A POSIX shell: dash, busybox ash, or another `/bin/sh`.
    Posix,
}

/// How a shell reads a line, and what it can be told: what the session has to know about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// With `--noediting`: the kernel edits the line.
    Bash,
    /// The kernel edits the line; descriptors have one digit.
    Dash,
    /// The shell edits the line, needs ECHO for it and asks the terminal for its cursor.
    Ash,
}

/// A shell that can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShellProgram {
    pub(super) path: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) dialect: Dialect,
}

impl ShellProgram {
    /// The best shell on `search` (a `PATH`), with the usual places as a last resort: a container's `PATH` may be
    /// empty. There is always an answer; that it does not exist shows when it is started.
    pub(super) fn find(search: Option<&OsStr>) -> Self {
        let bash = find_executable("bash", search).or_else(|| executable("/bin/bash"));
        let posix = || find_executable("sh", search).or_else(|| executable("/bin/sh"));
        Self::at(bash.or_else(posix).unwrap_or_else(|| "/bin/sh".into()))
    }

    /// The shell at `path`. Links are followed only to learn what it is: busybox decides by the name it is called.
    pub(super) fn at(path: PathBuf) -> Self {
        let target = path.canonicalize().unwrap_or_else(|_| path.clone());
        let named = |path: &Path, name: &str| path.file_name().is_some_and(|file| file == name);
        if named(&target, "bash") {
            let arguments = ["--noprofile", "--norc", "--noediting", "+H", "+o", "history", "-i"];
            return Self {
                path: target,
                arguments: arguments.map(Into::into).to_vec(),
                dialect: Dialect::Bash,
            };
        }
        let is_busybox =
            target.file_name().is_some_and(|file| file.as_encoded_bytes().starts_with(b"busybox"));
        if !is_busybox {
            return Self { path, arguments: vec!["-i".into()], dialect: Dialect::Dash };
        }
        let mut arguments = vec!["-i".into()];
        if !named(&path, "sh") && !named(&path, "ash") {
            arguments.insert(0, "ash".into());
        }
        Self { path, arguments, dialect: Dialect::Ash }
    }

    /// What it is called with for a person at a terminal, or to run one command there.
    pub(super) fn arguments_for_a_person(&self, command: Option<&str>) -> Vec<OsString> {
        // A busybox that is called by its own name has to be told which of its programs is meant.
        let applet = self.arguments.first().filter(|first| *first == "ash").cloned();
        let command = command.map(|command| ["-c".into(), command.into()]);
        applet.into_iter().chain(command.into_iter().flatten()).collect()
    }

    pub(super) fn kind(&self) -> ShellKind {
        match self.dialect {
            Dialect::Bash => ShellKind::Bash,
            Dialect::Dash | Dialect::Ash => ShellKind::Posix,
        }
    }
}

/// The first executable called `name` on `search`.
pub(super) fn find_executable(name: &str, search: Option<&OsStr>) -> Option<PathBuf> {
    std::env::split_paths(search?).map(|folder| folder.join(name)).find_map(executable)
}

fn executable(path: impl Into<PathBuf>) -> Option<PathBuf> {
    let path = path.into();
    (path.is_file() && access(&path, AccessFlags::X_OK).is_ok()).then_some(path)
}
