//! schemathesis: had from PyPI once, then kept in the target folder, and run so that every run is the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::confinement::{KEY, KEY_HEADER, Server};
use crate::command;
use crate::scratch::Scratch;
use crate::workspace::Workspace;

/// All of it, with versions.
const REQUIREMENTS: &str = include_str!("requirements.txt");

/// Requests made for each operation, besides those at the bounds of every field.
const EXAMPLES: &str = "20";

/// A failure tells what failed first; the rest is seen when that is mended.
const MAX_FAILURES: &str = "3";
const MAX_REPORT_LINES: usize = 60;

/// Where it is installed.
#[derive(Debug)]
pub(super) struct Schemathesis {
    packages: PathBuf,
}

impl Schemathesis {
    /// Installs it, unless that was done. Only built packages: a build would need more than Python.
    pub(super) fn find(workspace: &Workspace) -> Result<Self> {
        let cache = workspace.cache()?;
        // Some packages fit one version of Python only.
        let mut python = Command::new("python3");
        python.args(["-c", "import sys; print(sys.implementation.cache_tag)"]);
        let python = command::capture(&mut python, "looking for Python")?;
        let packages = cache.join(format!("schemathesis-{}", python.trim()));
        let installed = packages.join("requirements.txt");
        if fs::read_to_string(&installed).is_ok_and(|installed| installed == REQUIREMENTS) {
            return Ok(Self { packages });
        }
        let scratch = Scratch::new_in(&cache)?;
        let (list, target) = (scratch.path().join("requirements.txt"), scratch.path().join("packages"));
        fs::write(&list, REQUIREMENTS).with_context(|| format!("writing {}", list.display()))?;
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--only-binary",
            ":all:",
        ]);
        pip.arg("--target").arg(&target).arg("--requirement").arg(&list);
        command::capture(&mut pip, "installing schemathesis")?;
        // Its mark of being complete.
        fs::rename(&list, target.join("requirements.txt")).context("moving the list of packages")?;
        if packages.exists() {
            fs::remove_dir_all(&packages).with_context(|| format!("removing {}", packages.display()))?;
        }
        fs::rename(&target, &packages).with_context(|| format!("moving to {}", packages.display()))?;
        Ok(Self { packages })
    }

    /// Sends what `document` leads to, and tells how much that was.
    pub(super) fn run(&self, document: &Path, server: &Server, scratch: &Path) -> Result<String> {
        let summary = scratch.join("summary.json");
        let mut tests = Command::new("python3");
        tests.args(["-m", "schemathesis.cli", "run"]).arg(document);
        tests.args(["--url", &format!("http://{}", server.address())]);
        tests.args(["--header", &format!("{KEY_HEADER}: {KEY}")]);
        tests.args(["--checks", "not_a_server_error", "--phases", "examples,coverage,fuzzing"]);
        tests.args([
            "--seed",
            "1",
            "--max-examples",
            EXAMPLES,
            "--generation-database",
            "none",
            "--workers",
            "1",
        ]);
        // They look at how long something takes, which says nothing on a busy machine.
        tests.args(["--suppress-health-check", "all"]);
        tests.args(["--request-timeout", "20", "--max-failures", MAX_FAILURES, "--no-shrink", "--no-color"]);
        tests.args(["--report", "json", "--report-json-path"]).arg(&summary);
        // It leaves files where it is.
        tests.current_dir(scratch).env("PYTHONPATH", &self.packages).env("PYTHONHASHSEED", "0");
        let (status, report) = command::told(&mut tests, "running schemathesis")?;
        if !status.success() {
            bail!("schemathesis: {status}\n{}", findings(&report));
        }
        let summary = fs::read_to_string(&summary).context("reading schemathesis's summary")?;
        told(&serde_json::from_str(&summary).context("reading schemathesis's summary as JSON")?)
    }
}

/// The parts of the report that tell what is wrong, or all of it if there is none.
fn findings(report: &str) -> String {
    let mut is_told = false;
    let parts = report.lines().filter(|line| {
        if let Some(title) = line.strip_prefix("===").map(|line| line.trim_matches(['=', ' '])) {
            is_told = ["FAILURES", "ERRORS"].contains(&title);
        }
        is_told
    });
    let mut told: Vec<&str> = parts.collect();
    if told.is_empty() {
        told = report.lines().collect();
    }
    let left_out = told.len().saturating_sub(MAX_REPORT_LINES);
    told.truncate(MAX_REPORT_LINES);
    let rest = if left_out > 0 { format!("\n… and {left_out} lines more") } else { String::new() };
    told.join("\n") + &rest
}

/// A sentence about what was tested, with the operations that refused all that they were sent: their work was not. That
/// some were left out is an error.
fn told(summary: &Value) -> Result<String> {
    let number = |pointer: &str| summary.pointer(pointer).and_then(Value::as_u64).context(pointer.to_owned());
    let (all, tested) = (number("/operations/total")?, number("/operations/tested")?);
    if tested != all || all == 0 {
        bail!("schemathesis tested {tested} of {all} operations");
    }
    let cases = number("/test_cases/generated")?;
    let rates = summary.get("valid_rates").and_then(Value::as_object).context("/valid_rates")?;
    let refusing: Vec<&str> = rates
        .iter()
        .filter(|(_, phases)| !accepted(phases))
        .map(|(operation, _)| operation.as_str())
        .collect();
    let but = if refusing.is_empty() {
        String::new()
    } else {
        format!("; all were refused by {}", refusing.join(", "))
    };
    Ok(format!("{cases} requests of {tested} operations, no answer was the server's fault{but}"))
}

/// Whether any request of any phase was.
fn accepted(phases: &Value) -> bool {
    let count = |phase: &Value| phase.get("accepted").and_then(Value::as_u64);
    phases.as_object().is_some_and(|phases| phases.values().filter_map(count).any(|count| count > 0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_wrong_is_repeated() {
        let report =
            "noise\n=== FAILURES ===\n__ GET /x __\n1. it failed\n=== WARNINGS ===\nnoise\n=== SUMMARY ===\n";
        assert_eq!(findings(report), "=== FAILURES ===\n__ GET /x __\n1. it failed");
        assert_eq!(findings("no sections"), "no sections");
        let long = format!("=== ERRORS ===\n{}", "line\n".repeat(100));
        assert!(findings(&long).ends_with("line\n… and 41 lines more"));
    }

    #[test]
    fn a_run_that_left_something_out_has_not_passed() {
        let summary = |tested| {
            json!({
                "operations": {"total": 3, "tested": tested},
                "test_cases": {"generated": 70},
                "valid_rates": {"GET /x": {"fuzzing": {"accepted": 1}}, "GET /y": {"fuzzing": {"accepted": 0}}},
            })
        };
        let expected =
            "70 requests of 3 operations, no answer was the server's fault; all were refused by GET /y";
        assert_eq!(told(&summary(3)).unwrap(), expected);
        assert_eq!(told(&summary(2)).unwrap_err().to_string(), "schemathesis tested 2 of 3 operations");
    }
}
