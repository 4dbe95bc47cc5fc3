//! The report on stdout: one line per step and a summary, as text or (`--json`) as one object per
//! line. The output of the programs that steps run goes to stderr (see `command`).

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

/// Time of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepTimes {
    pub(crate) total: Duration,
    /// Part of `total`.
    pub(crate) compiling: Duration,
}

struct CompletedStep {
    name: &'static str,
    result: Result<Notes>,
    times: StepTimes,
}

/// Prints each step's result immediately, and keeps it for the summary.
pub(crate) struct StepReport {
    style: Style,
    steps: Vec<CompletedStep>,
}

impl StepReport {
    pub(crate) fn new(style: Style) -> Self {
        Self {
            style,
            steps: Vec::new(),
        }
    }

    pub(crate) fn add(
        &mut self,
        name: &'static str,
        result: Result<Notes>,
        times: StepTimes,
    ) -> Result<()> {
        let step = CompletedStep {
            name,
            result,
            times,
        };
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
        self.steps
            .iter()
            .filter(|step| step.result.is_err())
            .map(|step| step.name)
            .collect()
    }

    fn seconds(&self) -> f64 {
        self.steps
            .iter()
            .map(|step| step.times.total.as_secs_f64())
            .sum()
    }

    fn compile_seconds(&self) -> f64 {
        self.steps
            .iter()
            .map(|step| step.times.compiling.as_secs_f64())
            .sum()
    }

    fn closing_lines(&self, interrupted: bool) -> String {
        let failed = self.failed();
        let verdict = match (interrupted, failed.is_empty()) {
            (true, _) => "interrupted".to_owned(),
            (false, true) => "all passed".to_owned(),
            (false, false) => format!("failed: {}", failed.join(", ")),
        };
        let mut text = format!(
            "\n{} steps in {:.1} s, {:.1} s of them compiling: {verdict}",
            self.steps.len(),
            self.seconds(),
            self.compile_seconds()
        );
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
            "compile_seconds": self.compile_seconds(),
        })
    }
}

fn line(step: &CompletedStep) -> String {
    let StepTimes { total, compiling } = step.times;
    let running = total.saturating_sub(compiling);
    let [total, compiling, running] = [total, compiling, running].map(|time| time.as_secs_f64());
    let times = format!("{total:>6.1} s (compiling {compiling:>5.1} s, running {running:>5.1} s)");
    match &step.result {
        Ok(_) => format!("ok      {:<13} {times}", step.name),
        Err(error) => format!("FAILED  {:<13} {times}  {error:#}", step.name),
    }
}

fn object(step: &CompletedStep) -> Value {
    let mut object = json!({
        "step": step.name,
        "seconds": step.times.total.as_secs_f64(),
        "compile_seconds": step.times.compiling.as_secs_f64(),
    });
    match &step.result {
        Ok(notes) => (object["outcome"], object["notes"]) = ("passed".into(), json!(notes)),
        Err(error) => {
            (object["outcome"], object["error"]) = ("failed".into(), format!("{error:#}").into());
        }
    }
    object
}

/// Prints a progress line on stderr. Write errors are ignored: a closed stderr does not fail the
/// run.
pub(crate) fn note(text: &str) {
    let _ = writeln!(stderr(), "ci: {text}");
}

/// Prints the error that ends the program, and returns the exit code.
pub(crate) fn failure(error: &Error) -> ExitCode {
    note(&format!("{error:#}"));
    if interrupt::is_requested() {
        ExitCode::from(INTERRUPTED)
    } else {
        ExitCode::FAILURE
    }
}

/// Prints a line on stdout.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .context("cannot write to stdout")
}

pub(crate) fn help() -> Result<()> {
    let mut text =
        "usage: cargo ci [STEP…] [--json]\n\nWithout a step, all of them run in this order:\n"
            .to_owned();
    let line = |step: &Step| format!("  {:<13} {}\n", step.name(), step.description());
    text.extend(Step::FULL_RUN.iter().map(line));
    text += "\nA step that only runs if it is named:\n";
    text.extend(Step::ON_REQUEST.iter().map(line));
    text += "\nOther commands:\n  \
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
        CompletedStep {
            name: "test",
            result: Err(error),
            times: times(1500),
        }
    }

    fn times(milliseconds: u64) -> StepTimes {
        StepTimes {
            total: Duration::from_millis(milliseconds),
            compiling: Duration::from_millis(400),
        }
    }

    #[test]
    fn line_contains_the_cause_when_a_step_failed() {
        assert_eq!(
            line(&failed_test()),
            "FAILED  test             1.5 s (compiling   0.4 s, running   1.1 s)  running the tests: exit status: 1"
        );
    }

    #[test]
    fn summary_contains_failures_and_notes() {
        let result = Ok(vec!["2 MiB".to_owned()]);
        let budget = CompletedStep {
            name: "budget",
            result,
            times: times(500),
        };
        let report = StepReport {
            style: Style::Lines,
            steps: vec![budget, failed_test()],
        };
        assert_eq!(
            report.closing_lines(false),
            "\n2 steps in 2.0 s, 0.8 s of them compiling: failed: test\n  budget: 2 MiB"
        );
        assert_eq!(
            report.closing_object(false)["summary"]["failed"],
            json!(["test"])
        );
    }
}
