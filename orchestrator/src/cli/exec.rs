//! `glovebox exec`: one command in a fresh sandbox.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::sandbox::{OutputChunk, Sandbox, SandboxSpec};
use protocol::action::RunAction;
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::{ActionId, EventId, Observation, ObservationKind};

use super::follow::{Interrupts, Output, Screen};
use super::run::new_conversation_id;
use super::{PlaceArguments, prepare, print};
use crate::compose::{self, StateDir, Sweep};
use crate::config::{Config, Overrides};
use crate::exit::{Exit, UsageError};
use crate::workspace::{self, WorkFolder};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Several words are quoted for the shell; a single one is shell text. There is nothing on its standard input.
  glovebox exec -- ls -la          glovebox exec -- 'cd /tmp && ls | wc -l'")]
pub(super) struct ExecArguments {
    #[command(flatten)]
    place: PlaceArguments,

    /// Print the observation as JSON instead of the output.
    #[arg(long)]
    json: bool,

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
    let command = Command { text: shell_text(&arguments.command)?, timeout: None };
    let spec = SandboxSpec {
        environment: workspace::environment(&config, None),
        workspace: WorkFolder::for_spec(&config, arguments.place.directory.as_deref())?,
        ..compose::spec(&config, new_conversation_id()?)
    };
    let output = if arguments.json { Output::Silent } else { Output::Transcript };
    let observation = in_fresh_sandbox(&config, &state_dir, spec, command, output).await?;
    let Some(observation) = observation else { return Ok(Exit::Interrupted) };
    if arguments.json {
        print::line(&serde_json::to_string(&observation)?)?;
    }
    match &observation.kind {
        ObservationKind::Run(run) => Ok(Exit::OfCommand(exit_code(run.metadata.exit_code))),
        _ => anyhow::bail!("{}", observation.content),
    }
}

/// Runs one command in a sandbox that is removed afterwards, also after ^C: then there is no observation. Its output
/// goes to standard output as it comes, unless nothing is to be shown. It may name secrets, and shows none.
pub(super) async fn in_fresh_sandbox(
    config: &Config,
    state_dir: &StateDir,
    spec: SandboxSpec,
    command: Command,
    output: Output,
) -> anyhow::Result<Option<Observation>> {
    let mut interrupts = Interrupts::listen()?;
    let _lock = state_dir.lock_for_once(&spec.conversation)?;
    let provider = compose::guarded_provider(config, state_dir, &compose::redactor(config)?)?;
    let sweep = Sweep::begin(&provider, config, state_dir);
    let screen = std::sync::Mutex::new(Screen::new(output));
    let on_progress = |progress| {
        screen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).start(&progress);
    };
    let created = tokio::select! {
        created = provider.create(&spec, &on_progress) => created,
        () = interrupts.next() => {
            provider.settle().await;
            return Ok(None);
        }
    };
    let sandbox = created?;
    drop(screen);
    let id = ActionId::of(&spec.conversation, EventId::FIRST);
    let result = tokio::select! {
        result = perform(sandbox.as_ref(), &id, command, output) => Some(result),
        () = interrupts.next() => None,
    };
    let sandbox_id = sandbox.lease().sandbox_id.clone();
    drop(sandbox);
    if let Err(error) = provider.destroy(&sandbox_id).await {
        print::warning(&format!("removing the sandbox {sandbox_id}: {error}"));
    }
    sweep.end().await;
    result.transpose()
}

async fn perform(
    sandbox: &dyn Sandbox,
    id: &ActionId,
    command: Command,
    output: Output,
) -> anyhow::Result<Observation> {
    let run = RunAction { command: command.text, blocking: true, ..Default::default() };
    let request = ActionRequest::new(SandboxAction::Run(run), command.timeout);
    let lost = AtomicU64::new(0);
    let on_output = |chunk: OutputChunk<'_>| match (output, chunk) {
        (Output::Json | Output::Silent, _) => {}
        // A reader of ours that went away does not end the command.
        (Output::Transcript, OutputChunk::Bytes { bytes, .. }) => drop(print::command_output(bytes)),
        (Output::Transcript, OutputChunk::Gap { from, to }) => {
            lost.fetch_add(to.saturating_sub(from), Ordering::Relaxed);
        }
    };
    let observation = sandbox.execute(id, &request, &on_output).await?;
    match lost.load(Ordering::Relaxed) {
        0 => Ok(observation),
        // Output with a hole in it is worse than a failure.
        bytes => anyhow::bail!(
            "{bytes} bytes of output came faster than they could be carried and are lost; {}",
            observation.message()
        ),
    }
}

/// A line that runs the words in a shell of their own, with nothing to read. A single word is shell text already.
fn shell_text(words: &[String]) -> anyhow::Result<String> {
    let quoted = |words: &[String]| {
        let joined = shlex::try_join(words.iter().map(String::as_str));
        joined.map_err(|error| UsageError(format!("the command: {error}")))
    };
    let script = match words {
        [text] => text.clone(),
        words => quoted(words)?,
    };
    Ok(format!("\"${{BASH:-sh}}\" -c {} </dev/null", quoted(&[script])?))
}

/// A command's exit code as a process can end with it.
fn exit_code(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(1)
}
