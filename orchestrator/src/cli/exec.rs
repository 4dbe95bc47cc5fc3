//! `glovebox exec`: runs one command in a fresh sandbox.

use conversations::Conversations;
use engine::sandbox::SandboxSpec;
use protocol::ObservationKind;
use protocol::sandbox_api::ProcessRequest;

use super::fresh_sandbox::{CommandResult, in_fresh_sandbox, with_fresh_sandbox};
use super::screen::Output;
use super::{BackendOptions, prepare, print, program, startup_files, trusted_config};
use crate::compose::{self, StateDir};
use crate::config::{Config, Overrides};
use crate::exit::{Exit, INTERRUPTED};
use crate::workspace::{self, WorkspaceFolder};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Several words are quoted for the shell; a single one is a script. The command reads standard input, as with ssh: in a loop \
that reads a file, use -n. ^C terminates the command, and the exit code is 130. If the output is a closed pipe, the exit \
code is 141.
With --json, the command has no standard input. Of longer output, the first and the last half million characters are \
printed, and `metadata.suffix` has the number of missing ones. Without --json, all output is printed while it is written, and \
a slow reader of it slows the command down.
  glovebox exec -- ls -la          glovebox exec -- 'cd /tmp && ls | wc -l'
  tar cz . | glovebox exec -- 'tar xz && make'")]
pub(super) struct ExecArguments {
    #[command(flatten)]
    backend: BackendOptions,

    /// Print the observation as JSON instead of the output.
    #[arg(long)]
    json: bool,

    /// Do not pass on standard input.
    #[arg(short = 'n', long)]
    no_stdin: bool,

    /// The command.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(super) async fn run(arguments: ExecArguments, overrides: Overrides) -> anyhow::Result<Exit> {
    let (config, state_dir) = prepare(&arguments.backend.overrides(overrides)).await?;
    let script = program::script(&arguments.command)?;
    let spec = SandboxSpec {
        environment: workspace::environment(&config.workspace, None),
        workspace: WorkspaceFolder::for_spec(&config, arguments.backend.directory.as_deref())?,
        ..compose::spec(&config.sandbox, Conversations::new_id())
    };
    trusted_config::check_sandbox(&config, &spec)?;
    if arguments.json {
        return print_observation(&config, &state_dir, spec, &script).await;
    }
    let secrets = compose::registry(&config.secrets).named_in(&script);
    let (id, redactor) = (program::new_id()?, compose::redactor(&config)?);
    let reads_stdin = !arguments.no_stdin;
    let result = with_fresh_sandbox(
        &config,
        &state_dir,
        spec,
        Output::Transcript,
        async |sandbox, interrupts| {
            let made = interrupts
                .unless_interrupted(startup_files::environment(sandbox))
                .await;
            let Some(mut env) = made.transpose()? else {
                return Ok(Exit::Interrupted);
            };
            env.extend(secrets);
            let request = ProcessRequest {
                env,
                ..ProcessRequest::new(shell_of(&script))
            };
            program::run(
                sandbox.processes()?,
                &id,
                &request,
                reads_stdin,
                &redactor,
                interrupts,
            )
            .await
        },
    );
    let exit = result.await?.unwrap_or(Exit::Interrupted);
    if exit == Exit::Interrupted {
        print::error(INTERRUPTED_COMMAND);
    }
    Ok(exit)
}

const INTERRUPTED_COMMAND: &str = "interrupted; the command was terminated";

/// Runs a command as agents do, and prints its observation.
async fn print_observation(
    config: &Config,
    state_dir: &StateDir,
    spec: SandboxSpec,
    script: &str,
) -> anyhow::Result<Exit> {
    let command = in_its_own_shell(script)?;
    let result = in_fresh_sandbox(config, state_dir, spec, command, None).await?;
    let (mut observation, is_interrupted) = match result {
        CommandResult::Done(observation) => (observation, false),
        CommandResult::Interrupted(observation) => {
            print::error(INTERRUPTED_COMMAND);
            let Some(observation) = observation else {
                return Ok(Exit::Interrupted);
            };
            (observation, true)
        }
    };
    if let ObservationKind::Run(run) = &mut observation.kind {
        // The command of the user, without the shell that was added to it.
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

/// Command line of a shell that runs a script: bash if it exists, as for agents.
fn shell_of(script: &str) -> [&str; 5] {
    const SHELL: &str = r#"exec "$(command -v bash || command -v sh)" -c "$1""#;
    ["sh", "-c", SHELL, "sh", script]
}

/// Command that runs a script in a separate shell without standard input.
fn in_its_own_shell(script: &str) -> anyhow::Result<String> {
    Ok(format!(
        "\"${{BASH:-sh}}\" -c {} </dev/null",
        program::quoted([script])?
    ))
}

/// Converts the exit code of a command to that of a process.
fn exit_code(code: i64) -> u8 {
    u8::try_from(code).unwrap_or(1)
}
