//! The steps: their names, what each looks at, and the loop that runs them one after another.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Error, Result};

use crate::report::{Outcome, Report, Style};
use crate::workspace::Workspace;
use crate::{
    bench, budget, clippy, dependencies, docs, format, fuzz, interrupt, layering, schema, sim, test,
};

/// A check. None of them is random: that would fail another's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Format,
    Layering,
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

/// What a passed step wants remembered in the summary: numbers measured, parts skipped.
pub(crate) type Notes = Vec<String>;

impl Step {
    /// In the order of a whole run: what fails in a second comes first.
    pub(crate) const ALL: [Self; 11] = [
        Self::Format,
        Self::Layering,
        Self::Dependencies,
        Self::Clippy,
        Self::Budget,
        Self::Docs,
        Self::Schema,
        Self::Test,
        Self::BenchShort,
        Self::Sim,
        Self::Fuzz,
    ];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Layering => "layering",
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

    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Format => {
                "the code is formatted as by cargo fmt, and test names have at most 60 characters"
            }
            Self::Layering => "our crates depend on each other only as the design draws it",
            Self::Dependencies => {
                "bans, licences and version floors; every dependency has its reason beside it"
            }
            Self::Clippy => "no warnings of the compiler or of clippy",
            Self::Budget => "the action server is static, small and made of few crates",
            Self::Docs => "links and commands of the documentation are valid, and cargo doc has no warnings",
            Self::Schema => "no request that the API's document leads to makes the server fail",
            Self::Test => "all tests, with a container engine if one can be had; nothing is left behind",
            Self::BenchShort => "every group of the benchmarks still runs",
            Self::Sim => "no simulated conversation breaks a law, whatever happens in it",
            Self::Fuzz => "no fuzz target of the action server finds anything in some thousand inputs",
        }
    }

    fn run(self, workspace: &Workspace) -> Result<Notes> {
        match self {
            Self::Format => format::run(workspace),
            Self::Layering => layering::run(workspace),
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

/// Whether this is a build machine (`CI=true`). There nothing may be skipped: nobody reads what a green run skipped.
pub(crate) fn is_strict() -> bool {
    std::env::var_os("CI").is_some_and(|ci| ci == "true")
}

/// A note that `what` was left out because of `why`; where that may not be, or it was ^C, `why` is the error.
pub(crate) fn skipped(what: &str, why: Error) -> Result<Notes> {
    if is_strict() || interrupt::requested() {
        return Err(why);
    }
    Ok(vec![format!("skipped {what}: {why:#}")])
}

/// Runs all of `steps`, also after one failed, and tells how each ended. An interrupt ends the run.
pub(crate) fn run_all(workspace: &Workspace, steps: &[Step], style: Style) -> Result<ExitCode> {
    let mut report = Report::new(style);
    for &step in steps {
        if interrupt::requested() {
            break;
        }
        let start = Instant::now();
        let result = step.run(workspace);
        report.step(step.name(), Outcome::of(result), start.elapsed())?;
    }
    report.summary(interrupt::requested())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contributors_guide_lists_all_steps_in_their_order() {
        let guide = include_str!("../../CONTRIBUTING.md");
        let rows = guide.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let listed: Vec<_> = rows.map(|(name, _)| name).filter(|name| Step::named(name).is_some()).collect();
        assert_eq!(listed, Step::ALL.map(Step::name));
    }
}
