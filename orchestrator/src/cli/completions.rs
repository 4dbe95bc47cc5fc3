//! `glovebox completions SHELL`.

use clap::CommandFactory as _;

use super::{Arguments, print};
use crate::exit::Exit;

#[derive(Debug, clap::Args)]
pub(super) struct CompletionsArguments {
    /// The shell.
    shell: clap_complete::Shell,
}

pub(super) fn run(arguments: &CompletionsArguments) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "glovebox", &mut script);
    print::bytes(&script)?;
    Ok(Exit::Finished)
}
