//! `glovebox exec`: one command in a fresh sandbox.

use conversations::Conversations;
use engine::sandbox::SandboxSpec;
use protocol::ObservationKind;
use protocol::sandbox_api::ProcessRequest;

use super::fresh_sandbox::{Command, CommandResult, in_fresh_sandbox, with_fresh_sandbox};
use super::screen::Output;
use super::{PlaceArguments, decided_config, prepare, print, program};
use crate::compose::{self, StateDir};
use crate::config::{Config, Overrides};
use crate::exit::{Exit, INTERRUPTED, UsageError};
use crate::workspace::{self, WorkFolder};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Several words are quoted for the shell; a single one is shell text. The command reads standard input, as with ssh: in a
loop that reads a file, use -n. ^C ends the command: what it wrote until then stays, and the exit code is 130. If its
reader goes away, the exit code is 141.
With --json the command reads nothing. Of longer output the first and the last half million characters are printed, and
`metadata.suffix` says how many were left out; without --json all of it is printed, as it comes.
  glovebox exec -- ls -la          glovebox exec -- 'cd /tmp && ls | wc -l'
  tar cz . | glovebox exec -- 'tar xz && make'")]
pub(super) struct ExecArguments {
    #[command(flatten)]
    place: PlaceArguments,

    /// Print the observation as JSON instead of the output.
    #[arg(long)]
    json: bool,

    /// Give it nothing to read, instead of standard input.
    #[arg(short = 'n', long)]
    no_stdin: bool,

    /// The command.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(super) async fn run(arguments: ExecArguments, overrides: Overrides) -> anyhow::Result<Exit> {
    let (config, state_dir) = prepare(&arguments.place.overrides(overrides)).await?;
    let script = script(&arguments.command)?;
    let spec = SandboxSpec {
        environment: workspace::environment(&config.workspace, None),
        workspace: WorkFolder::for_spec(&config, arguments.place.directory.as_deref())?,
        ..compose::spec(&config, Conversations::new_id())
    };
    decided_config::check_sandbox(&config, &spec)?;
    if arguments.json {
        return print_observation(&config, &state_dir, spec, &script).await;
    }
    let request = ProcessRequest {
        env: compose::registry(&config).named_in(&script),
        ..ProcessRequest::new(shell_of(&script))
    };
    let (id, redactor) = (program::new_id()?, compose::redactor(&config)?);
    let reads_stdin = !arguments.no_stdin;
    let ended =
        with_fresh_sandbox(&config, &state_dir, spec, Output::Transcript, async |sandbox, interrupts| {
            program::run(sandbox.processes()?, &id, &request, reads_stdin, &redactor, interrupts).await
        });
    let exit = ended.await?.unwrap_or(Exit::Interrupted);
    if exit == Exit::Interrupted {
        print::error(INTERRUPTED_COMMAND);
    }
    Ok(exit)
}

const INTERRUPTED_COMMAND: &str = "interrupted; the command was ended";

/// Runs a command as agents do, and prints its observation.
async fn print_observation(
    config: &Config,
    state_dir: &StateDir,
    spec: SandboxSpec,
    script: &str,
) -> anyhow::Result<Exit> {
    let command = Command { text: in_its_own_shell(script)?, timeout: None };
    let (mut observation, is_interrupted) = match in_fresh_sandbox(config, state_dir, spec, command).await? {
        CommandResult::Done(observation) => (observation, false),
        CommandResult::Interrupted(observation) => {
            print::error(INTERRUPTED_COMMAND);
            let Some(observation) = observation else { return Ok(Exit::Interrupted) };
            (observation, true)
        }
    };
    if let ObservationKind::Run(run) = &mut observation.kind {
        // The user's, not what we made of it.
        run.command = compose::redactor(config)?.text(script).into_owned();
        run.hidden = false;
        if is_interrupted {
            run.metadata.exit_code = INTERRUPTED.into();
        }
    }
    print::line(&serde_json::to_string(&observation)?)?;
    match &observation.kind {
        _ if is_interrupted => Ok(Exit::Interrupted),
        ObservationKind::Run(run) => Ok(Exit::OfCommand(exit_code(run.metadata.exit_code))),
        _ => anyhow::bail!("{}", observation.content),
    }
}

/// Words as shell text. A single word is that already.
fn script(words: &[String]) -> anyhow::Result<String> {
    match words {
        [text] => Ok(text.clone()),
        words => Ok(quoted(words.iter().map(String::as_str))?),
    }
}

/// The program that runs shell text: bash where there is one, as in the agent's shell.
fn shell_of(script: &str) -> [&str; 5] {
    const SHELL: &str = r#"exec "$(command -v bash || command -v sh)" -c "$1""#;
    ["sh", "-c", SHELL, "sh", script]
}

/// A line that runs shell text in a shell of its own, with nothing to read.
fn in_its_own_shell(script: &str) -> anyhow::Result<String> {
    Ok(format!("\"${{BASH:-sh}}\" -c {} </dev/null", quoted([script])?))
}

fn quoted<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<String, UsageError> {
    shlex::try_join(words).map_err(|error| UsageError(format!("the command: {error}")))
}

/// A command's exit code as a process can end with it.
fn exit_code(code: i64) -> u8 {
    u8::try_from(code).unwrap_or(1)
}
