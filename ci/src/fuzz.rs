//! Step `fuzz`: runs each fuzz target briefly, with the same inputs every time. Findings are
//! reported and written to `action-server/fuzz/artifacts`.
//!
//! Builds with the flags of `cargo fuzz --sanitizer none`, so that a machine needs neither that
//! program nor a nightly compiler. For another and longer search, `cargo fuzz run TARGET`, or what
//! is built here, without arguments: `target/fuzz/x86_64-unknown-linux-gnu/release/TARGET`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::command;
use crate::scratch::ScratchFolder;
use crate::step::Notes;
use crate::workspace::Workspace;

/// Targets and their input counts. Each takes about five seconds.
const TARGETS: [(&str, u64); 5] = [
    ("archive", 10_000),
    ("edit", 50_000),
    ("fold", 60_000),
    ("marks", 300_000),
    ("request", 400_000),
];

/// Options of libFuzzer for a deterministic search. Comparison values (`-use_cmp`) are off, because
/// they include addresses, which differ in every run.
const SEARCH_OPTIONS: [&str; 5] = [
    "-seed=1",
    "-use_cmp=0",
    "-reduce_inputs=0",
    "-len_control=0",
    "-max_len=1024",
];

/// Time of one input, in seconds, before it counts as a hang.
const INPUT_TIMEOUT: &str = "-timeout=60";

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Compiler flags that insert the coverage counters of libFuzzer.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Ccodegen-units=1";

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    let folder = workspace.root.join("action-server/fuzz");
    check_names(&folder.join("fuzz_targets"))?;
    let target = workspace.target.join("fuzz");
    let mut cargo = workspace.cargo();
    cargo
        .args([
            "build",
            "--release",
            "--locked",
            "--target",
            TRIPLE,
            "--target-dir",
        ])
        .arg(&target);
    cargo.current_dir(&folder).env("RUSTFLAGS", FLAGS);
    workspace.compile(&mut cargo, "building the fuzz targets")?;
    let artifacts = folder.join("artifacts");
    std::fs::create_dir_all(&artifacts).context("cannot create the folder for findings")?;
    let memory = Path::new("/dev/shm");
    let scratch = ScratchFolder::new_in(if memory.is_dir() { memory } else { &target })?;
    for (name, runs) in TARGETS {
        let mut fuzzer = Command::new(target.join(TRIPLE).join("release").join(name));
        fuzzer
            .args(SEARCH_OPTIONS)
            .args([INPUT_TIMEOUT, &format!("-runs={runs}")]);
        fuzzer.env("TMPDIR", scratch.path());
        fuzzer.arg(format!("-artifact_prefix={}/{name}-", artifacts.display()));
        command::capture(&mut fuzzer, &format!("fuzzing {name}"))?;
    }
    let counts: Vec<String> = TARGETS
        .iter()
        .map(|(name, runs)| format!("{name} {runs}"))
        .collect();
    Ok(vec![format!("inputs: {}", counts.join(", "))])
}

/// Compares the source files with `TARGETS`, because a target that is not listed would never run.
fn check_names(folder: &Path) -> Result<()> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).context("cannot list the fuzz targets")? {
        found.insert(
            entry?
                .path()
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        );
    }
    let listed = TARGETS.map(|(name, _)| name.to_owned()).into();
    if found != listed {
        bail!("the fuzz targets are {found:?}, but TARGETS lists {listed:?}");
    }
    Ok(())
}
