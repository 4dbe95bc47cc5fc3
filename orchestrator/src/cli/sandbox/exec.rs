//! `glovebox sandbox exec`: runs a program in an existing sandbox.

use protocol::sandbox_api::ProcessRequest;

use super::arguments::SandboxChoice;
use super::create::variables;
use crate::cli::interrupts::Interrupts;
use crate::cli::program;
use crate::compose;
use crate::config::Overrides;
use crate::exit::Exit;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Runs the program directly, without a shell. Exit codes: 128 plus the signal's number if a signal terminated the program, \
127 if it does not exist, 126 if it cannot be executed. Values of [secrets] are redacted in the output; \
`glovebox sandbox cp` copies them unchanged.
Examples:
  glovebox sandbox exec box -- python3 -m http.server 8080
  glovebox sandbox exec box -- sh -c 'cd /tmp && ls | wc -l'
  tar cz . | glovebox sandbox exec box -- tar xz -C /tmp")]
pub(super) struct ExecArguments {
    #[command(flatten)]
    sandbox: SandboxChoice,

    /// Set an environment variable of the program; without VALUE, to its value in this shell.
    #[arg(short = 'e', long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,

    /// Working directory of the program. By default, that of the sandbox's shells.
    #[arg(short = 'w', long, value_name = "DIR")]
    workdir: Option<String>,

    /// Run as this user: USER or USER:GROUP, each a name or a number. Requires a sandbox that runs
    /// as root.
    #[arg(short = 'u', long, value_name = "USER")]
    user: Option<String>,

    /// Do not pass on standard input.
    #[arg(short = 'n', long)]
    no_stdin: bool,

    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(super) async fn run(arguments: ExecArguments, overrides: &Overrides) -> anyhow::Result<Exit> {
    let mut interrupts = Interrupts::listen()?;
    let request = ProcessRequest {
        env: variables(&arguments.env)?,
        cwd: arguments.workdir,
        user: arguments.user,
        ..ProcessRequest::new(arguments.command)
    };
    let connecting = interrupts
        .unless_interrupted(arguments.sandbox.connect(overrides))
        .await;
    let Some(connected) = connecting else {
        return Ok(Exit::Interrupted);
    };
    let (runtime, sandbox) = connected?;
    let (id, redactor) = (program::new_id()?, compose::redactor(&runtime.config)?);
    let reads_stdin = !arguments.no_stdin;
    program::run(
        sandbox.processes()?,
        &id,
        &request,
        reads_stdin,
        &redactor,
        &mut interrupts,
    )
    .await
}
