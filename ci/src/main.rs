//! `cargo ci`: every check this project makes of itself, one file a step.
//!
//! It reads the workspace from the outside (`cargo metadata`, the tracked files, the built program) and knows none of
//! our crates. Whatever a step starts it ends before it returns, also after a failure or ^C.

mod bench;
mod budget;
mod clippy;
mod command;
mod dependencies;
mod docs;
mod elf;
mod engine;
mod format;
mod fuzz;
mod interrupt;
mod invocation;
mod layering;
mod mcp_servers;
mod metadata;
mod processes;
mod report;
mod schema;
mod scratch;
mod sim;
mod step;
mod test;
mod test_names;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;

use invocation::Invocation;
use workspace::Workspace;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => report::failure(&error),
    }
}

fn run() -> Result<ExitCode> {
    interrupt::watch()?;
    match Invocation::parse(std::env::args().skip(1))? {
        Invocation::Help => report::help()?,
        Invocation::Checks { steps, style } => return step::run_all(&Workspace::find()?, &steps, style),
        Invocation::Engine { folder } => engine::keep(&Workspace::find()?, folder)?,
        Invocation::Bench { arguments } => bench::run(&Workspace::find()?, &arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}
