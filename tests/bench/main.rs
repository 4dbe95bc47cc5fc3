//! `cargo ci bench`: figures and their floors, measured in one run. Ratios are comparable between
//! machines, times are not.
//!
//! Rows are printed as they are measured. `--json` prints a list of `{name, value, unit, floor,
//! ratio, aim, ok, error, skipped}` at the end, `--short` only checks that every group runs. With
//! names of groups ([`GROUPS`]), measures only those. Exits with 1 if an aim is missed or a group
//! fails, and with 2 if an argument is unknown. A failed group is a row and does not stop the
//! others.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)] // a benchmark that cannot measure panics

mod bare_http;
mod conversation;
mod docker;
mod exec;
mod figure;
mod list;
mod load;
mod report;
mod serve;
mod server;
mod service;
mod shell;
mod ssh;
mod steps;
mod store;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::timeout;

use figure::Figure;
use report::{BenchmarkReport, Effort, Format};

/// Maximum time of a group.
const GROUP_TIMEOUT: Duration = Duration::from_secs(15 * 60);

type BenchmarkGroup = (&'static str, fn(BenchmarkReport) -> BoxFuture<'static, ()>);

/// The groups in the order of a complete run.
const GROUPS: [BenchmarkGroup; 11] = [
    ("shell", |report| shell::measure(report).boxed()),
    ("server", |report| server::measure(report).boxed()),
    ("load", |report| load::measure(report).boxed()),
    ("exec", |report| exec::measure(report).boxed()),
    ("docker", |report| docker::measure(report).boxed()),
    ("store", |report| store::measure(report).boxed()),
    ("list", |report| list::measure(report).boxed()),
    ("steps", |report| steps::measure(report).boxed()),
    ("serve", |report| serve::measure(report).boxed()),
    ("service", |report| service::measure(report).boxed()),
    ("ssh", |report| ssh::measure(report).boxed()),
];

fn main() -> ExitCode {
    let (mut effort, mut format, mut names) = (Effort::Full, Format::Table, Vec::new());
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--short" => effort = Effort::Short,
            "--json" => format = Format::Json,
            name if GROUPS.iter().any(|(group, _)| *group == name) => names.push(argument),
            other => {
                let groups = GROUPS.map(|(group, _)| group).join(", ");
                eprintln!(
                    "cannot read the arguments: {other} is neither --json, --short nor a group ({groups})"
                );
                return ExitCode::from(2);
            }
        }
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let report = BenchmarkReport::new(effort, format);
    for (name, measure) in GROUPS {
        if names.is_empty() || names.iter().any(|named| named == name) {
            runtime.block_on(run_group(name, measure, &report));
        }
    }
    ExitCode::from(u8::from(!report.finish()))
}

/// Measures a group. Reports a failed row if it panics or takes too long.
async fn run_group(
    name: &'static str,
    measure: fn(BenchmarkReport) -> BoxFuture<'static, ()>,
    report: &BenchmarkReport,
) {
    let group = AssertUnwindSafe(measure(report.clone())).catch_unwind();
    match timeout(GROUP_TIMEOUT, group).await {
        Ok(Ok(())) => {}
        Ok(Err(panic)) => report.add(Figure::failed(name, panic_text(&*panic))),
        Err(_) => report.add(Figure::failed(
            name,
            format!("took more than {} s", GROUP_TIMEOUT.as_secs()),
        )),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("panicked")
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn failed_group_is_reported_as_a_failed_row() {
        let report = BenchmarkReport::new(Effort::Short, Format::Table);
        run_group(
            "broken",
            |_| async { panic!("cannot start\nmore") }.boxed(),
            &report,
        )
        .await;
        run_group(
            "whole",
            |report| async move { report.add(Figure::count("rest", 1)) }.boxed(),
            &report,
        )
        .await;
        assert_eq!(
            report.row_count(),
            2,
            "the group after the failed one is not measured"
        );
        assert!(!report.finish(), "a failed group fails a short run too");
    }

    #[test]
    fn missed_limit_counts_only_in_a_full_run() {
        for (effort, passes) in [(Effort::Full, false), (Effort::Short, true)] {
            let report = BenchmarkReport::new(effort, Format::Table);
            report.add(Figure::below("too slow", 2.0, "ms", 1.0));
            assert_eq!(report.finish(), passes, "{effort:?}");
        }
    }
}
