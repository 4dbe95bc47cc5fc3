//! `cargo ci`: the checks of this project, one module per step.
//!
//! Inspects the workspace from the outside (`cargo metadata`, tracked files, built programs) and
//! depends on none of our crates. A step terminates everything it started before it returns, also
//! after a failure or ^C.

mod bench;
mod budget;
mod clippy;
mod command;
mod cycles;
mod dependencies;
mod docs;
mod downloads;
mod elf;
mod engine;
mod format;
mod fuzz;
mod interrupt;
mod invocation;
mod layering;
mod metadata;
mod packages;
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
    interrupt::install_handlers()?;
    match Invocation::parse(std::env::args().skip(1))? {
        Invocation::Help => report::help()?,
        Invocation::Checks { steps, style } => {
            return step::run_all(&Workspace::find()?, &steps, style);
        }
        Invocation::Engine { folder } => engine::run(&Workspace::find()?, folder.as_deref())?,
        Invocation::Bench { arguments } => bench::run(&Workspace::find()?, &arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}
