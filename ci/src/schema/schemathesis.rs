//! schemathesis: installed from PyPI once, cached in the target folder, and run deterministically.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::confinement::{IsolatedServer, KEY, KEY_HEADER};
use crate::command;
use crate::packages::{install_once, pip_install};

/// All packages with their versions.
const REQUIREMENTS: &str = include_str!("requirements.txt");

/// Number of requests per operation, in addition to those at the bounds of each field.
const MAX_EXAMPLES: &str = "20";

/// A run stops after the first failures and reports the start of their output.
const MAX_FAILURES: &str = "3";
const MAX_REPORT_LINES: usize = 60;

/// An installed schemathesis.
#[derive(Debug)]
pub(super) struct Schemathesis {
    packages: PathBuf,
}

impl Schemathesis {
    /// Installs schemathesis unless an earlier run has.
    pub(super) fn install(cache: &Path) -> Result<Self> {
        let packages = install_once(cache, "schemathesis", REQUIREMENTS, |folder| {
            pip_install(folder, REQUIREMENTS)
        })?;
        Ok(Self { packages })
    }

    /// Sends the requests derived from `document` and returns a summary.
    pub(super) fn run(
        &self,
        document: &Path,
        server: &IsolatedServer,
        scratch: &Path,
    ) -> Result<String> {
        let summary = scratch.join("summary.json");
        let mut tests = Command::new("python3");
        tests.args(["-m", "schemathesis.cli", "run"]).arg(document);
        tests.args(["--url", &format!("http://{}", server.address())]);
        tests.args(["--header", &format!("{KEY_HEADER}: {KEY}")]);
        tests.args([
            "--checks",
            "not_a_server_error",
            "--phases",
            "examples,coverage,fuzzing",
        ]);
        tests.args([
            "--seed",
            "1",
            "--max-examples",
            MAX_EXAMPLES,
            "--generation-database",
            "none",
            "--workers",
            "1",
        ]);
        // Health checks measure time, which is not meaningful on a busy machine.
        tests.args(["--suppress-health-check", "all"]);
        tests.args([
            "--request-timeout",
            "20",
            "--max-failures",
            MAX_FAILURES,
            "--no-shrink",
            "--no-color",
        ]);
        tests
            .args(["--report", "json", "--report-json-path"])
            .arg(&summary);
        // It writes files to its working directory.
        tests
            .current_dir(scratch)
            .env("PYTHONPATH", &self.packages)
            .env("PYTHONHASHSEED", "0");
        let (status, report) = command::capture_with_status(&mut tests, "running schemathesis")?;
        if !status.success() {
            bail!("schemathesis: {status}\n{}", findings(&report));
        }
        let summary = fs::read_to_string(&summary).context("cannot read schemathesis's summary")?;
        summarize(&serde_json::from_str(&summary).context("cannot parse schemathesis's summary")?)
    }
}

/// Returns the failures and errors of the report, or all of it if it has none.
fn findings(report: &str) -> String {
    let mut in_findings = false;
    let parts = report.lines().filter(|line| {
        if let Some(title) = line
            .strip_prefix("===")
            .map(|line| line.trim_matches(['=', ' ']))
        {
            in_findings = ["FAILURES", "ERRORS"].contains(&title);
        }
        in_findings
    });
    let mut lines: Vec<&str> = parts.collect();
    if lines.is_empty() {
        lines = report.lines().collect();
    }
    let omitted = lines.len().saturating_sub(MAX_REPORT_LINES);
    lines.truncate(MAX_REPORT_LINES);
    let rest = if omitted > 0 {
        format!("\n… and {omitted} more lines")
    } else {
        String::new()
    };
    lines.join("\n") + &rest
}

/// Describes what was tested, and lists the operations that rejected every request, since these
/// were not exercised. Returns an error if an operation was skipped.
fn summarize(summary: &Value) -> Result<String> {
    let number = |pointer: &str| {
        summary
            .pointer(pointer)
            .and_then(Value::as_u64)
            .context(pointer.to_owned())
    };
    let (all, tested) = (number("/operations/total")?, number("/operations/tested")?);
    if tested != all || all == 0 {
        bail!("schemathesis tested {tested} of {all} operations");
    }
    let cases = number("/test_cases/generated")?;
    let rates = summary
        .get("valid_rates")
        .and_then(Value::as_object)
        .context("/valid_rates")?;
    let rejecting: Vec<&str> = rates
        .iter()
        .filter(|(_, phases)| !has_accepted(phases))
        .map(|(operation, _)| operation.as_str())
        .collect();
    let suffix = if rejecting.is_empty() {
        String::new()
    } else {
        format!("; all were rejected by {}", rejecting.join(", "))
    };
    Ok(format!(
        "{cases} requests of {tested} operations, no server errors{suffix}"
    ))
}

/// Whether any request of any phase was accepted.
fn has_accepted(phases: &Value) -> bool {
    let count = |phase: &Value| phase.get("accepted").and_then(Value::as_u64);
    phases
        .as_object()
        .is_some_and(|phases| phases.values().filter_map(count).any(|count| count > 0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn report_is_reduced_to_failures_and_errors() {
        let report = "noise\n=== FAILURES ===\n__ GET /x __\n1. it failed\n=== WARNINGS ===\nnoise\n=== SUMMARY ===\n";
        assert_eq!(
            findings(report),
            "=== FAILURES ===\n__ GET /x __\n1. it failed"
        );
        assert_eq!(findings("no sections"), "no sections");
        let long = format!("=== ERRORS ===\n{}", "line\n".repeat(100));
        assert!(findings(&long).ends_with("line\n… and 41 more lines"));
    }

    #[test]
    fn error_is_returned_when_an_operation_was_skipped() {
        let summary = |tested| {
            json!({
                "operations": {"total": 3, "tested": tested},
                "test_cases": {"generated": 70},
                "valid_rates": {"GET /x": {"fuzzing": {"accepted": 1}}, "GET /y": {"fuzzing": {"accepted": 0}}},
            })
        };
        let expected = "70 requests of 3 operations, no server errors; all were rejected by GET /y";
        assert_eq!(summarize(&summary(3)).unwrap(), expected);
        assert_eq!(
            summarize(&summary(2)).unwrap_err().to_string(),
            "schemathesis tested 2 of 3 operations"
        );
    }
}
