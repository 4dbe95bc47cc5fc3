//! Step `fuzz`: each fuzz target runs for a moment. What one finds is written to `fuzz/artifacts` and told.
//!
//! Builds with the flags of `cargo fuzz --sanitizer none`, so that a machine needs neither that program nor a nightly
//! compiler; with them, `cargo fuzz run TARGET` does the same for as long as one likes.

use anyhow::{Context as _, Result};

use crate::command;
use crate::step::Notes;
use crate::workspace::Workspace;

/// Each target's time: enough for a few hundred thousand inputs.
const SECONDS: u64 = 5;

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Coverage counters, as libFuzzer reads them.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Ccodegen-units=1";

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    let folder = workspace.root.join("fuzz");
    let target = workspace.target.join("fuzz");
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--release", "--locked", "--target", TRIPLE, "--target-dir"]).arg(&target);
    cargo.current_dir(&folder).env("RUSTFLAGS", FLAGS);
    command::stream(&mut cargo, "building the fuzz targets")?;
    let artifacts = folder.join("artifacts");
    std::fs::create_dir_all(&artifacts).context("making the folder for findings")?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder.join("fuzz_targets")).context("listing the fuzz targets")? {
        let name = entry?.path().file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut fuzzer = std::process::Command::new(target.join(TRIPLE).join("release").join(&name));
        fuzzer.arg(format!("-max_total_time={SECONDS}")).arg("-max_len=4096");
        fuzzer.arg(format!("-artifact_prefix={}/{name}-", artifacts.display()));
        command::capture(&mut fuzzer, &format!("fuzzing {name}"))?;
        names.push(name);
    }
    names.sort();
    Ok(vec![format!("fuzzed for {SECONDS} s each: {}", names.join(", "))])
}
