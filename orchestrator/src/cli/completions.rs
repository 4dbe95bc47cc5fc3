//! `glovebox completions SHELL`: the script that makes a shell run this program at each completion.

use std::path::PathBuf;

use clap::CommandFactory as _;
use clap_complete::env::{CompleteEnv, Shells};

use super::{Arguments, print};
use crate::exit::{Exit, UsageError};

/// Environment variable that requests candidates, and names the shell.
const VARIABLE: &str = "GLOVEBOX_COMPLETE";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(glovebox completions bash)      # in ~/.bashrc
  source <(glovebox completions zsh)       # in ~/.zshrc, after compinit
  glovebox completions fish | source       # in ~/.config/fish/config.fish")]
pub(super) struct CompletionsArguments {
    /// The shell.
    shell: clap_complete::Shell,
}

pub(super) fn run(arguments: &CompletionsArguments) -> anyhow::Result<Exit> {
    let shell = arguments.shell.to_string();
    let shells = Shells::builtins();
    let completer = shells
        .completer(&shell)
        .ok_or_else(|| UsageError(format!("there are no completions for {shell}")))?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "glovebox", "glovebox", &program(), &mut script)?;
    print::bytes(&script)?;
    Ok(Exit::Finished)
}

/// The command that the shell runs: the name if this program was found in `PATH`, else the path.
fn program() -> String {
    let called = std::env::args_os()
        .next()
        .map(PathBuf::from)
        .unwrap_or_default();
    let path = called
        .components()
        .nth(1)
        .and_then(|_| std::env::current_exe().ok());
    path.unwrap_or(called).to_string_lossy().into_owned()
}

/// Prints the candidates and exits if the shell requests them. Called before anything else.
pub(crate) fn complete_if_requested() {
    CompleteEnv::with_factory(Arguments::command)
        .var(VARIABLE)
        .complete();
}
