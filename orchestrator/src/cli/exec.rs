//! `glovebox exec`: one command in a fresh sandbox.

use std::pin::pin;

use conversations::Conversations;
use engine::sandbox::{Sandbox, SandboxSpec};
use protocol::action::RunAction;
use protocol::sandbox_api::{ActionRequest, ProcessRequest, SandboxAction};
use protocol::{ActionId, EventId, Observation, ObservationKind};
use tokio::time::timeout;

use super::follow::{Interrupts, Output, STOP_PATIENCE, Screen};
use super::program;
use super::{PlaceArguments, prepare, print, trust};
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

/// What is run in a fresh sandbox.
pub(super) struct Command {
    /// A line of shell.
    pub(super) text: String,
    /// How long it may take, in seconds; nothing: as long as it likes.
    pub(super) timeout: Option<f64>,
}

pub(super) async fn run(arguments: ExecArguments, overrides: Overrides) -> anyhow::Result<Exit> {
    let (config, state_dir) = prepare(&arguments.place.overrides(overrides)).await?;
    let script = script(&arguments.command)?;
    let spec = SandboxSpec {
        environment: workspace::environment(&config, None),
        workspace: WorkFolder::for_spec(&config, arguments.place.directory.as_deref())?,
        ..compose::spec(&config, Conversations::new_id())
    };
    trust::check_sandbox(&config, &spec)?;
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
            program::run(sandbox, &id, &request, reads_stdin, &redactor, interrupts).await
        });
    let exit = ended.await?.unwrap_or(Exit::Interrupted);
    if exit == Exit::Interrupted {
        print::problem(INTERRUPTED_COMMAND);
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
        Ended::Done(observation) => (observation, false),
        Ended::Interrupted(observation) => {
            print::problem(INTERRUPTED_COMMAND);
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

/// How a command came to its end.
pub(super) enum Ended {
    /// By itself.
    Done(Observation),
    /// By ^C; what came of it until then, if that could be had.
    Interrupted(Option<Observation>),
}

/// Runs one command in a sandbox that is removed afterwards, also after ^C. It may name secrets, and shows none.
pub(super) async fn in_fresh_sandbox(
    config: &Config,
    state_dir: &StateDir,
    spec: SandboxSpec,
    command: Command,
) -> anyhow::Result<Ended> {
    let id = ActionId::for_event(&spec.conversation, EventId::FIRST);
    let ended = with_fresh_sandbox(config, state_dir, spec, Output::Silent, async |sandbox, interrupts| {
        perform_or_end(sandbox, &id, command, interrupts).await
    });
    Ok(ended.await?.unwrap_or(Ended::Interrupted(None)))
}

/// Works in a sandbox that is removed afterwards, also after ^C. `None` if it was interrupted before the sandbox was there.
async fn with_fresh_sandbox<T>(
    config: &Config,
    state_dir: &StateDir,
    spec: SandboxSpec,
    progress: Output,
    work: impl AsyncFnOnce(&dyn Sandbox, &mut Interrupts) -> anyhow::Result<T>,
) -> anyhow::Result<Option<T>> {
    let mut interrupts = Interrupts::listen()?;
    let _lock = state_dir.lock(&spec.conversation)?;
    let provider = compose::guarded_provider(config, state_dir, &compose::redactor(config)?)?;
    let sweep = compose::sweep(&provider, config, state_dir);
    let screen = std::sync::Mutex::new(Screen::new(progress));
    let on_progress = |progress| {
        screen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).start(&progress);
    };
    let created = tokio::select! {
        created = provider.create(&spec, &on_progress) => created,
        () = interrupts.next() => {
            provider.wait_for_cleanup().await;
            return Ok(None);
        }
    };
    let sandbox = created?;
    drop(screen);
    let result = work(sandbox.as_ref(), &mut interrupts).await;
    let sandbox_id = sandbox.lease().sandbox_id.clone();
    drop(sandbox);
    if let Err(error) = provider.destroy(&sandbox_id).await {
        print::warning(&format!("removing the sandbox {sandbox_id}: {error}"));
    }
    sweep.finish().await;
    result.map(Some)
}

/// Performs a command; the first interrupt ends it and waits for its observation, the second leaves immediately: the
/// removal of its sandbox ends it.
async fn perform_or_end(
    sandbox: &dyn Sandbox,
    id: &ActionId,
    command: Command,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Ended> {
    // Not for an agent's eyes: of what is, only 30,000 characters would come.
    let run = RunAction { command: command.text, blocking: true, hidden: true, ..Default::default() };
    let request = ActionRequest::new(SandboxAction::Run(run), command.timeout);
    let mut performing = pin!(sandbox.execute(id, &request, &|_| ()));
    tokio::select! {
        observation = &mut performing => return Ok(Ended::Done(observation?)),
        () = interrupts.next() => {}
    }
    let ending =
        async { tokio::try_join!(sandbox.cancel(id), performing).map(|((), observation)| observation) };
    let ended = tokio::select! {
        ended = timeout(STOP_PATIENCE, ending) => ended,
        () = interrupts.next() => return Ok(Ended::Interrupted(None)),
    };
    Ok(Ended::Interrupted(match ended {
        Ok(Ok(observation)) => Some(observation),
        // Its sandbox is removed, and it with that.
        Ok(Err(error)) => {
            print::warning(&format!("ending the command: {error:#}"));
            None
        }
        Err(_) => None,
    }))
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
