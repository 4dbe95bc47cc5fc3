//! The report on stdout: one line per step and a summary, as text or (`--json`) as one object per line. The output of the
//! programs that steps run goes to stderr (see `command`).

use std::io::{Write as _, stderr, stdout};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Error, Result};
use serde_json::{Value, json};

use crate::interrupt;
use crate::step::{Notes, Step};

/// Exit code of an interrupted program, by the convention of shells.
const INTERRUPTED: u8 = 130;

/// Format of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Lines,
    Json,
}

struct CompletedStep {
    name: &'static str,
    result: Result<Notes>,
    took: Duration,
}

/// Prints each step's result immediately, and keeps it for the summary.
pub(crate) struct StepReport {
    style: Style,
    steps: Vec<CompletedStep>,
}

impl StepReport {
    pub(crate) fn new(style: Style) -> Self {
        Self { style, steps: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: &'static str, result: Result<Notes>, took: Duration) -> Result<()> {
        let step = CompletedStep { name, result, took };
        print(&match self.style {
            Style::Lines => line(&step),
            Style::Json => object(&step).to_string(),
        })?;
        self.steps.push(step);
        Ok(())
    }

    pub(crate) fn summary(&self, interrupted: bool) -> Result<ExitCode> {
        print(&match self.style {
            Style::Lines => self.closing_lines(interrupted),
            Style::Json => self.closing_object(interrupted).to_string(),
        })?;
        Ok(match (interrupted, self.failed().is_empty()) {
            (true, _) => ExitCode::from(INTERRUPTED),
            (false, true) => ExitCode::SUCCESS,
            (false, false) => ExitCode::FAILURE,
        })
    }

    fn failed(&self) -> Vec<&'static str> {
        self.steps.iter().filter(|step| step.result.is_err()).map(|step| step.name).collect()
    }

    fn seconds(&self) -> f64 {
        self.steps.iter().map(|step| step.took.as_secs_f64()).sum()
    }

    fn closing_lines(&self, interrupted: bool) -> String {
        let failed = self.failed();
        let verdict = match (interrupted, failed.is_empty()) {
            (true, _) => "interrupted".to_owned(),
            (false, true) => "all passed".to_owned(),
            (false, false) => format!("failed: {}", failed.join(", ")),
        };
        let mut text = format!("\n{} steps in {:.1} s: {verdict}", self.steps.len(), self.seconds());
        for step in &self.steps {
            for note in step.result.iter().flatten() {
                text += &format!("\n  {}: {note}", step.name);
            }
        }
        text
    }

    fn closing_object(&self, interrupted: bool) -> Value {
        json!({
            "summary": { "steps": self.steps.len(), "failed": self.failed(), "interrupted": interrupted },
            "seconds": self.seconds(),
        })
    }
}

fn line(step: &CompletedStep) -> String {
    let seconds = step.took.as_secs_f64();
    match &step.result {
        Ok(_) => format!("ok      {:<13} {seconds:>6.1} s", step.name),
        Err(error) => format!("FAILED  {:<13} {seconds:>6.1} s  {error:#}", step.name),
    }
}

fn object(step: &CompletedStep) -> Value {
    let seconds = step.took.as_secs_f64();
    match &step.result {
        Ok(notes) => {
            json!({ "step": step.name, "outcome": "passed", "seconds": seconds, "notes": notes })
        }
        Err(error) => {
            json!({ "step": step.name, "outcome": "failed", "seconds": seconds, "error": format!("{error:#}") })
        }
    }
}

/// Prints a progress line on stderr. Write errors are ignored: a closed stderr does not fail the run.
pub(crate) fn note(text: &str) {
    let _ = writeln!(stderr(), "ci: {text}");
}

/// Prints the error that ends the program, and returns the exit code.
pub(crate) fn failure(error: &Error) -> ExitCode {
    note(&format!("{error:#}"));
    if interrupt::is_requested() { ExitCode::from(INTERRUPTED) } else { ExitCode::FAILURE }
}

/// Prints a line on stdout.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).context("cannot write to stdout")
}

pub(crate) fn help() -> Result<()> {
    let mut text =
        "usage: cargo ci [STEP…] [--json]\n\nWithout a step, all of them run in this order:\n".to_owned();
    for step in Step::ALL {
        text += &format!("  {:<13} {}\n", step.name(), step.description());
    }
    text += "\nOther commands, not part of a full run:\n  \
        bench [--short] [GROUP…] the benchmarks, with the same engine as the tests\n  \
        engine [--folder PATH] a private container engine with the test images, until ^C\n\n\
        --json prints one object per line instead of text.";
    print(&text)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    fn failed_test() -> CompletedStep {
        let error = anyhow!("exit status: 1").context("running the tests");
        CompletedStep { name: "test", result: Err(error), took: Duration::from_millis(1500) }
    }

    #[test]
    fn line_contains_the_cause_when_a_step_failed() {
        assert_eq!(line(&failed_test()), "FAILED  test             1.5 s  running the tests: exit status: 1");
    }

    #[test]
    fn summary_contains_failures_and_notes() {
        let result = Ok(vec!["2 MiB".to_owned()]);
        let budget = CompletedStep { name: "budget", result, took: Duration::from_millis(500) };
        let report = StepReport { style: Style::Lines, steps: vec![budget, failed_test()] };
        assert_eq!(report.closing_lines(false), "\n2 steps in 2.0 s: failed: test\n  budget: 2 MiB");
        assert_eq!(report.closing_object(false)["summary"]["failed"], json!(["test"]));
    }
}
