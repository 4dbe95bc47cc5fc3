//! What is printed on stdout: one line a step and a summary, for people or (`--json`) one object a line for programs.
//! What the steps' own programs print goes to stderr (see `command`).

use std::io::{Write as _, stderr, stdout};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Error, Result};
use serde_json::{Value, json};

use crate::interrupt;
use crate::step::{Notes, Step};

/// The exit code of a program that ^C ended, by the shells' convention.
const INTERRUPTED: u8 = 130;

/// For whom the report is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Lines,
    Json,
}

/// How one step ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Passed(Notes),
    Failed(Error),
}

impl Outcome {
    pub(crate) fn of(result: Result<Notes>) -> Self {
        match result {
            Ok(notes) => Self::Passed(notes),
            Err(error) => Self::Failed(error),
        }
    }
}

struct Ended {
    name: &'static str,
    outcome: Outcome,
    took: Duration,
}

/// Tells each step's end as it comes, and remembers it for the summary.
pub(crate) struct Report {
    style: Style,
    ended: Vec<Ended>,
}

impl Report {
    pub(crate) fn new(style: Style) -> Self {
        Self { style, ended: Vec::new() }
    }

    pub(crate) fn step(&mut self, name: &'static str, outcome: Outcome, took: Duration) -> Result<()> {
        let ended = Ended { name, outcome, took };
        print(&match self.style {
            Style::Lines => line(&ended),
            Style::Json => object(&ended).to_string(),
        })?;
        self.ended.push(ended);
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
        self.ended
            .iter()
            .filter(|step| matches!(step.outcome, Outcome::Failed(_)))
            .map(|step| step.name)
            .collect()
    }

    fn seconds(&self) -> f64 {
        self.ended.iter().map(|step| step.took.as_secs_f64()).sum()
    }

    fn closing_lines(&self, interrupted: bool) -> String {
        let failed = self.failed();
        let verdict = match (interrupted, failed.is_empty()) {
            (true, _) => "interrupted".to_owned(),
            (false, true) => "all passed".to_owned(),
            (false, false) => format!("failed: {}", failed.join(", ")),
        };
        let mut text = format!("\n{} steps in {:.1} s: {verdict}", self.ended.len(), self.seconds());
        for step in &self.ended {
            if let Outcome::Passed(notes) = &step.outcome {
                for note in notes {
                    text += &format!("\n  {}: {note}", step.name);
                }
            }
        }
        text
    }

    fn closing_object(&self, interrupted: bool) -> Value {
        json!({
            "summary": { "steps": self.ended.len(), "failed": self.failed(), "interrupted": interrupted },
            "seconds": self.seconds(),
        })
    }
}

fn line(step: &Ended) -> String {
    let seconds = step.took.as_secs_f64();
    match &step.outcome {
        Outcome::Passed(_) => format!("ok      {:<13} {seconds:>6.1} s", step.name),
        Outcome::Failed(error) => format!("FAILED  {:<13} {seconds:>6.1} s  {error:#}", step.name),
    }
}

fn object(step: &Ended) -> Value {
    let seconds = step.took.as_secs_f64();
    match &step.outcome {
        Outcome::Passed(notes) => {
            json!({ "step": step.name, "outcome": "passed", "seconds": seconds, "notes": notes })
        }
        Outcome::Failed(error) => {
            json!({ "step": step.name, "outcome": "failed", "seconds": seconds, "error": format!("{error:#}") })
        }
    }
}

/// A sentence on stderr about what is going on. Whoever closed stderr does not want it.
pub(crate) fn note(text: &str) {
    let _ = writeln!(stderr(), "ci: {text}");
}

/// The error that ended the program, and what the program's caller is told of it.
pub(crate) fn failure(error: &Error) -> ExitCode {
    note(&format!("{error:#}"));
    if interrupt::requested() { ExitCode::from(INTERRUPTED) } else { ExitCode::FAILURE }
}

/// A line on stdout.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).context("writing to stdout")
}

pub(crate) fn help() -> Result<()> {
    let mut text =
        "usage: cargo ci [STEP…] [--json]\n\nWith no step, every check in this order:\n".to_owned();
    for step in Step::ALL {
        text += &format!("  {:<13} {}\n", step.name(), step.about());
    }
    text += "\nNot checks, and never part of a whole run:\n  \
        bench [--short] [GROUP…] the benchmarks, with the same engine as the tests\n  \
        engine [--folder PATH] a private container engine with the test images, until ^C\n\n\
        --json prints one object a line instead of text.";
    print(&text)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    fn failed_test() -> Ended {
        let error = anyhow!("exit status: 1").context("running the tests");
        Ended { name: "test", outcome: Outcome::Failed(error), took: Duration::from_millis(1500) }
    }

    #[test]
    fn a_failure_says_why_on_its_line() {
        assert_eq!(line(&failed_test()), "FAILED  test             1.5 s  running the tests: exit status: 1");
    }

    #[test]
    fn the_summary_names_failures_and_notes() {
        let outcome = Outcome::Passed(vec!["2 MiB".to_owned()]);
        let budget = Ended { name: "budget", outcome, took: Duration::from_millis(500) };
        let report = Report { style: Style::Lines, ended: vec![budget, failed_test()] };
        assert_eq!(report.closing_lines(false), "\n2 steps in 2.0 s: failed: test\n  budget: 2 MiB");
        assert_eq!(report.closing_object(false)["summary"]["failed"], json!(["test"]));
    }
}
