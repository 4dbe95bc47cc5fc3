//! `glovebox exec`: one command in a fresh sandbox.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use engine::sandbox::{OutputChunk, Sandbox, SandboxSpec};
use protocol::action::RunAction;
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::{ActionId, EventId, Observation, ObservationKind};
use tokio::time::timeout;

use super::follow::{Interrupts, Output, STOP_PATIENCE, Screen};
use super::run::new_conversation_id;
use super::written::Written;
use super::{PlaceArguments, prepare, print};
use crate::compose::{self, StateDir, Sweep};
use crate::config::{Config, Overrides};
use crate::exit::{Exit, INTERRUPTED, UsageError};
use crate::workspace::{self, WorkFolder};

/// What is shown of a command after an interrupt, in bytes, and how long it may take until it has ended.
const LAST_WORDS: usize = 64 << 10;
const LAST_WORDS_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Several words are quoted for the shell; a single one is shell text. There is nothing on its standard input.
With --json the first and the last half million characters are printed of longer output, and how many were left out stands
in `metadata.suffix`; without it all of it is printed, as it comes. ^C ends the command: what it said until then stays, and
the exit code is 130. So does a reader that goes away: 141.
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
    let script = script(&arguments.command)?;
    let command = Command { text: in_its_own_shell(&script)?, timeout: None };
    let spec = SandboxSpec {
        environment: workspace::environment(&config, None),
        workspace: WorkFolder::for_spec(&config, arguments.place.directory.as_deref())?,
        ..compose::spec(&config, new_conversation_id()?)
    };
    let output = if arguments.json { Output::Silent } else { Output::Transcript };
    let ended = in_fresh_sandbox(&config, &state_dir, spec, command, output).await?;
    let (mut observation, is_interrupted) = match ended {
        Ended::Done(observation) => (observation, false),
        Ended::Unread(exit) => return Ok(exit),
        Ended::Interrupted(observation) => {
            print::problem("interrupted; the command was ended");
            let Some(observation) = observation else { return Ok(Exit::Interrupted) };
            (observation, true)
        }
    };
    if let ObservationKind::Run(run) = &mut observation.kind {
        // The user's, not what we made of it.
        run.command = compose::redactor(&config)?.text(&script).into_owned();
        run.hidden = false;
        if is_interrupted {
            run.metadata.exit_code = INTERRUPTED.into();
        }
    }
    if arguments.json {
        print::line(&serde_json::to_string(&observation)?)?;
    }
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
    /// By ^C; what came of it until then, if that could be had and is not shown already.
    Interrupted(Option<Observation>),
    /// Its output could not be written on.
    Unread(Exit),
}

/// Runs one command in a sandbox that is removed afterwards, also after ^C. Its output goes to standard output as it comes,
/// unless nothing is to be shown. It may name secrets, and shows none.
pub(super) async fn in_fresh_sandbox(
    config: &Config,
    state_dir: &StateDir,
    spec: SandboxSpec,
    command: Command,
    output: Output,
) -> anyhow::Result<Ended> {
    let mut interrupts = Interrupts::listen()?;
    let _lock = state_dir.lock(&spec.conversation)?;
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
            return Ok(Ended::Interrupted(None));
        }
    };
    let sandbox = created?;
    drop(screen);
    let id = ActionId::of(&spec.conversation, EventId::FIRST);
    let result = perform_or_end(sandbox.as_ref(), &id, command, output, &mut interrupts).await;
    let sandbox_id = sandbox.lease().sandbox_id.clone();
    drop(sandbox);
    if let Err(error) = provider.destroy(&sandbox_id).await {
        print::warning(&format!("removing the sandbox {sandbox_id}: {error}"));
    }
    sweep.end().await;
    result
}

/// Performs a command; the first interrupt ends it and hears how it ended, the second leaves at once, as does a reader that
/// goes away: its sandbox ends it.
async fn perform_or_end(
    sandbox: &dyn Sandbox,
    id: &ActionId,
    command: Command,
    output: Output,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Ended> {
    let (is_interrupted, written) = (interrupts.heard(), Written::default());
    let mut performing = pin!(perform(sandbox, id, command, output, &is_interrupted, &written));
    tokio::select! {
        result = &mut performing => return match written.failure() {
            Some(exit) => exit.map(Ended::Unread),
            None => result.map(Ended::Done),
        },
        exit = written.failed() => return exit.map(Ended::Unread),
        () = interrupts.next() => {}
    }
    let ending = async {
        let cancelling = async { Ok(sandbox.cancel(id).await?) };
        tokio::try_join!(cancelling, performing).map(|((), observation)| observation)
    };
    // Of a flood that is shown the rest, and how it ended, are of no use.
    let patience = if let Output::Transcript = output { LAST_WORDS_PATIENCE } else { STOP_PATIENCE };
    let ended = tokio::select! {
        ended = timeout(patience, ending) => ended,
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

async fn perform(
    sandbox: &dyn Sandbox,
    id: &ActionId,
    command: Command,
    output: Output,
    is_interrupted: &AtomicBool,
    written: &Written,
) -> anyhow::Result<Observation> {
    // Not for an agent's eyes: of what is, only 30,000 characters would come.
    let run = RunAction { command: command.text, blocking: true, hidden: true, ..Default::default() };
    let request = ActionRequest::new(SandboxAction::Run(run), command.timeout);
    let (lost, last_words) = (AtomicU64::new(0), AtomicUsize::new(0));
    // What the command had said by an interrupt may be much, and whoever interrupts has seen enough.
    let is_too_much = |bytes: usize| {
        is_interrupted.load(Ordering::Relaxed)
            && last_words.fetch_add(bytes, Ordering::Relaxed) + bytes > LAST_WORDS
    };
    let on_output = |chunk: OutputChunk<'_>| match (output, chunk) {
        (Output::Json | Output::Silent, _) => {}
        (Output::Transcript, OutputChunk::Bytes { bytes, .. }) if is_too_much(bytes.len()) => {}
        (Output::Transcript, OutputChunk::Bytes { bytes, .. }) => written.hear(print::program_stdout(bytes)),
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

/// Words as shell text. A single word is that already.
fn script(words: &[String]) -> anyhow::Result<String> {
    match words {
        [text] => Ok(text.clone()),
        words => Ok(quoted(words.iter().map(String::as_str))?),
    }
}

/// A line that runs shell text in a shell of its own, with nothing to read.
fn in_its_own_shell(script: &str) -> anyhow::Result<String> {
    Ok(format!("\"${{BASH:-sh}}\" -c {} </dev/null", quoted([script])?))
}

fn quoted<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<String, UsageError> {
    shlex::try_join(words).map_err(|error| UsageError(format!("the command: {error}")))
}

/// A command's exit code as a process can end with it.
fn exit_code(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(1)
}
