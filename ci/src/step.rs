//! The steps: names, descriptions, and the loop that runs them in sequence.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Error, Result};

use crate::report::{StepReport, StepTimes, Style};
use crate::workspace::Workspace;
use crate::{
    bench, budget, clippy, cycles, dependencies, docs, format, fuzz, interrupt, layering, schema,
    sim, test,
};

/// A check. Checks are deterministic, so that a failure is caused by the change under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Format,
    Layering,
    Cycles,
    Dependencies,
    Clippy,
    Budget,
    Docs,
    Schema,
    Test,
    BenchShort,
    Sim,
    Fuzz,
}

/// Lines that a passed step adds to the summary: measured numbers and skipped parts.
pub(crate) type Notes = Vec<String>;

impl Step {
    /// The steps of a full run in their order: the fastest first.
    pub(crate) const FULL_RUN: [Self; 11] = [
        Self::Format,
        Self::Layering,
        Self::Cycles,
        Self::Dependencies,
        Self::Clippy,
        Self::Budget,
        Self::Docs,
        Self::Schema,
        Self::Test,
        Self::BenchShort,
        Self::Sim,
    ];

    /// Steps that run only if they are named.
    pub(crate) const ON_REQUEST: [Self; 1] = [Self::Fuzz];

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::FULL_RUN
            .into_iter()
            .chain(Self::ON_REQUEST)
            .find(|step| step.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Layering => "layering",
            Self::Cycles => "cycles",
            Self::Dependencies => "dependencies",
            Self::Clippy => "clippy",
            Self::Budget => "budget",
            Self::Docs => "docs",
            Self::Schema => "schema",
            Self::Test => "test",
            Self::BenchShort => "bench-short",
            Self::Sim => "sim",
            Self::Fuzz => "fuzz",
        }
    }

    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::Format => {
                "the code is formatted as by cargo fmt; names of tests and comments are not too long"
            }
            Self::Layering => "our crates depend on each other only as designed",
            Self::Cycles => "no more modules use each other than did before",
            Self::Dependencies => {
                "bans, licences and minimum versions; each dependency states its reason"
            }
            Self::Clippy => "no warnings of the compiler or of clippy",
            Self::Budget => "the action server is static and within its limits of size and crates",
            Self::Docs => {
                "links and commands in the documentation are valid; cargo doc has no warnings"
            }
            Self::Schema => "no request derived from the API's document makes the server fail",
            Self::Test => "all tests, with a container engine if possible; nothing is left behind",
            Self::BenchShort => "every group of the benchmarks runs",
            Self::Sim => "no simulated conversation breaks a law",
            Self::Fuzz => "the fuzz targets of the action server find nothing",
        }
    }

    fn run(self, workspace: &Workspace) -> Result<Notes> {
        match self {
            Self::Format => format::run(workspace),
            Self::Layering => layering::run(workspace),
            Self::Cycles => cycles::run(workspace),
            Self::Dependencies => dependencies::run(workspace),
            Self::Clippy => clippy::run(workspace),
            Self::Budget => budget::run(workspace),
            Self::Docs => docs::run(workspace),
            Self::Schema => schema::run(workspace),
            Self::Test => test::run(workspace),
            Self::BenchShort => bench::run_short(workspace),
            Self::Sim => sim::run(workspace),
            Self::Fuzz => fuzz::run(workspace),
        }
    }
}

/// Whether `CI=true`. Nothing may be skipped then, because the notes of a passed run are not read.
pub(crate) fn is_strict() -> bool {
    std::env::var_os("CI").is_some_and(|ci| ci == "true")
}

/// Returns a note that `what` was skipped because of `why`. `Err(why)` if nothing may be skipped or
/// after an interrupt.
pub(crate) fn skipped(what: &str, why: Error) -> Result<Notes> {
    if is_strict() || interrupt::is_requested() {
        return Err(why);
    }
    Ok(vec![format!("skipped {what}: {why:#}")])
}

/// Runs all `steps` and reports each result. Continues after a failure; stops after an interrupt.
pub(crate) fn run_all(workspace: &Workspace, steps: &[Step], style: Style) -> Result<ExitCode> {
    let mut report = StepReport::new(style);
    if steps.contains(&Step::Test) {
        workspace.start_downloads()?;
    }
    for &step in steps {
        if interrupt::is_requested() {
            break;
        }
        let start = Instant::now();
        let result = step.run(workspace);
        let times = StepTimes {
            total: start.elapsed(),
            compiling: workspace.take_compile_time(),
        };
        report.add(step.name(), result, times)?;
    }
    workspace.finish_downloads();
    report.summary(interrupt::is_requested())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contributors_guide_lists_all_steps_in_order() {
        let guide = include_str!("../../CONTRIBUTING.md");
        let rows = guide
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let listed: Vec<_> = rows.filter_map(|(name, _)| Step::from_name(name)).collect();
        assert_eq!(listed, [&Step::FULL_RUN[..], &Step::ON_REQUEST].concat());
    }
}
