//! Skips tests that need something which this machine lacks. Shared by the tests of several crates.
//!
//! A skipped test passes and is reported. With `CI=true` it fails instead.

#![allow(dead_code, reason = "no crate needs all of it")]

use std::env;
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::thread;

/// Variable with the path of the list of skipped tests. Each line is `NEEDED\tBINARY\tTEST`.
pub(crate) const LIST_VARIABLE: &str = "GLOVEBOX_SKIPPED_TESTS";

/// What tests may need.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Requirement {
    /// An engine with the images that `cargo ci` builds.
    ContainerEngine,
    EngineWithoutGpus,
    PostgreSql,
    Bubblewrap,
    /// Isolation by namespaces, Landlock and seccomp.
    Landlock,
    ControlGroups,
    NpmPackages,
    PypiPackages,
    Root,
    /// A mount namespace, or mounts in the namespace of this process.
    Mount,
    /// A program in `PATH`.
    Program(&'static str),
}

impl Display for Requirement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::ContainerEngine => "a container engine",
            Self::EngineWithoutGpus => "a container engine without GPUs",
            Self::PostgreSql => "PostgreSQL",
            Self::Bubblewrap => "bubblewrap",
            Self::Landlock => "Landlock",
            Self::ControlGroups => "control groups",
            Self::NpmPackages => "packages from npm",
            Self::PypiPackages => "packages from PyPI",
            Self::Root => "root",
            Self::Mount => "permission to mount",
            Self::Program(name) => name,
        })
    }
}

/// Reports that the running test is skipped, because this machine lacks `needed`. Panics with
/// `CI=true`.
#[track_caller]
pub(crate) fn skip(needed: Requirement, reason: impl Display) {
    let is_build_machine = env::var_os("CI").is_some_and(|ci| ci == "true");
    let list = env::var_os(LIST_VARIABLE);
    report(
        needed,
        reason,
        is_build_machine,
        list.as_deref().map(Path::new),
    );
}

/// Skips the running test if a program is not in `PATH`. Returns whether it does.
#[track_caller]
pub(crate) fn skip_without(program: &'static str) -> bool {
    let folders = env::var_os("PATH").unwrap_or_default();
    let is_missing = !env::split_paths(&folders).any(|folder| folder.join(program).is_file());
    if is_missing {
        skip(Requirement::Program(program), "not found in PATH");
    }
    is_missing
}

#[track_caller]
pub(crate) fn report(
    needed: Requirement,
    reason: impl Display,
    is_build_machine: bool,
    list: Option<&Path>,
) {
    assert!(
        !is_build_machine,
        "cannot skip a test with CI=true: needs {needed}: {reason}"
    );
    eprintln!("skipped: needs {needed}: {reason}");
    let Some(list) = list else { return };
    // A single write, because the processes of other tests append concurrently.
    let file = File::options().create(true).append(true).open(list);
    let written = file.and_then(|mut file| file.write_all(line(needed).as_bytes()));
    assert!(
        written.is_ok(),
        "cannot write to {}: {written:?}",
        list.display()
    );
}

fn line(needed: Requirement) -> String {
    let executable = || Some(env::current_exe().ok()?.file_stem()?.to_str()?.to_owned());
    let current_thread = || thread::current().name().map(str::to_owned);
    let binary = env::var("NEXTEST_BINARY_ID").ok().or_else(executable);
    let test = env::var("NEXTEST_TEST_NAME").ok().or_else(current_thread);
    let [binary, test] = [binary, test].map(|field| {
        field
            .unwrap_or_else(|| "?".to_owned())
            .replace(['\t', '\n'], " ")
    });
    format!("{needed}\t{binary}\t{test}\n")
}
