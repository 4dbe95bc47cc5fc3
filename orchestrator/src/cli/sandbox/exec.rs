//! `glovebox sandbox exec`: one program in a sandbox that is there.

use clap_complete::engine::ArgValueCompleter;
use protocol::sandbox_api::ProcessRequest;

use super::create::variables;
use super::host::At;
use super::hosts::Hosts;
use super::name::Name;
use crate::cli::candidates;
use crate::cli::interrupts::Interrupts;
use crate::cli::program;
use crate::compose;
use crate::config::Overrides;
use crate::exit::Exit;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The words are the program's as they are; no shell reads them. What a signal ended exits with 128 and its number; 127 is
a program that is not there, 126 one that cannot be run.
Values of [secrets] are hidden in the output; `glovebox sandbox cp` copies what holds them.
Examples:
  glovebox sandbox exec box -- python3 -m http.server 8080
  glovebox sandbox exec box -- sh -c 'cd /tmp && ls | wc -l'
  tar cz . | glovebox sandbox exec box -- tar xz -C /tmp")]
pub(super) struct ExecArguments {
    /// The sandbox.
    #[arg(add = ArgValueCompleter::new(candidates::sandboxes))]
    name: Name,

    /// A variable for the program; without a value, this shell's.
    #[arg(short = 'e', long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,

    /// Where it begins; without it where shells of the sandbox do.
    #[arg(short = 'w', long, value_name = "DIR")]
    workdir: Option<String>,

    /// As whom it runs: USER or USER:GROUP, each a name or a number. Takes a sandbox that runs as root.
    #[arg(short = 'u', long, value_name = "USER")]
    user: Option<String>,

    /// Give it nothing to read, instead of standard input.
    #[arg(short = 'n', long)]
    no_stdin: bool,

    #[command(flatten)]
    at: At,

    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(super) async fn run(arguments: ExecArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let hosts = Hosts::open(&arguments.at, overrides).await?;
    let mut interrupts = Interrupts::listen()?;
    let request = ProcessRequest {
        env: variables(&arguments.env)?,
        cwd: arguments.workdir,
        user: arguments.user,
        ..ProcessRequest::new(arguments.command)
    };
    let (host, sandbox) = hosts.connect(&arguments.name).await?;
    let (id, redactor) = (program::new_id()?, compose::redactor(&host.config)?);
    let reads_stdin = !arguments.no_stdin;
    program::run(sandbox.processes()?, &id, &request, reads_stdin, &redactor, &mut interrupts).await
}
