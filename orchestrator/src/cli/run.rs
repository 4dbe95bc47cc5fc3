//! `glovebox run`: a new conversation, followed to its end.

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use engine::conversation::{Afterwards, Conversation, Parts};
use engine::llm::Llm;
use engine::sandbox::SandboxSpec;
use protocol::action::MessageAction;
use protocol::record::{ConversationStarted, WorkspaceSetup};
use protocol::{ConversationId, EventId};

use super::follow::{Follow, Output};
use super::{PlaceArguments, conversations, prepare, print};
use crate::compose::{self, StateDir, Sweep};
use crate::config::{Config, Overrides};
use crate::exit::{Exit, UsageError};
use crate::workspace::{self, WorkFolder};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The model comes from --model, LLM_MODEL or config.toml; its key from LLM_API_KEY, its address from LLM_BASE_URL.
Example: LLM_API_KEY=… glovebox run -l gpt-4o -d . -t 'Make the tests pass'")]
pub(super) struct RunArguments {
    /// The task.
    #[arg(short = 't', long, value_name = "TASK", conflicts_with = "file")]
    task: Option<String>,

    /// A UTF-8 file that holds the task; - is standard input.
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// A repository that is cloned into the workspace: OWNER/NAME, or what git clones from the sandbox.
    #[arg(long, value_name = "URL[#BRANCH]")]
    selected_repo: Option<String>,

    #[command(flatten)]
    place: PlaceArguments,

    #[command(flatten)]
    work: WorkArguments,
}

/// How the agent works, for new conversations and old ones.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct WorkArguments {
    /// A model, an [llm.NAME] group of the configuration, or scripted:FILE for a file of answers.
    #[arg(short = 'l', long, alias = "llm-config", value_name = "MODEL")]
    pub(super) model: Option<String>,

    /// How many steps the agent may take.
    #[arg(short = 'i', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_iterations: Option<u32>,

    /// Do not tell an agent that asks a question to go on by itself.
    #[arg(long)]
    pub(super) no_auto_continue: bool,

    /// Print one event a line as JSON on standard output instead of the transcript.
    #[arg(long)]
    pub(super) json: bool,

    /// Write the conversation's V0 events to this file at the end.
    #[arg(long, value_name = "FILE")]
    pub(super) save_trajectory: Option<PathBuf>,
}

impl WorkArguments {
    pub(super) fn overrides(&self, overrides: Overrides) -> Overrides {
        Overrides {
            model: self.model.clone(),
            max_iterations: self.max_iterations,
            save_trajectory: self.save_trajectory.clone(),
            ..overrides
        }
    }

    pub(super) fn output(&self) -> Output {
        if self.json { Output::Json } else { Output::Transcript }
    }
}

pub(super) async fn run(arguments: RunArguments, overrides: Overrides) -> anyhow::Result<Exit> {
    let task = read_task(arguments.task, arguments.file.as_deref())?;
    let overrides = arguments.place.overrides(arguments.work.overrides(overrides));
    let overrides = Overrides { selected_repository: arguments.selected_repo, ..overrides };
    let (config, state_dir) = prepare(&overrides).await?;
    let llm = compose::llm(&config.llm, 0)?;
    let id = new_conversation_id()?;
    let workspace = WorkFolder::choose(&config, &state_dir, &id, arguments.place.directory.as_deref())?;
    let setup = workspace::setup(&config, &workspace)?;
    let model = compose::lasting_model_name(&config.llm);
    let task = Task { id, text: task, workspace, setup, llm, model, work: arguments.work };
    perform(task, &config, &state_dir).await
}

/// A task that is ready to be begun.
pub(super) struct Task {
    pub(super) id: ConversationId,
    pub(super) text: String,
    pub(super) workspace: WorkFolder,
    /// How it is made ready.
    pub(super) setup: Option<WorkspaceSetup>,
    pub(super) llm: Arc<dyn Llm>,
    /// The name that the conversation is resumed with.
    pub(super) model: String,
    pub(super) work: WorkArguments,
}

/// Begins a conversation and follows it to its end.
pub(super) async fn perform(task: Task, config: &Config, state_dir: &StateDir) -> anyhow::Result<Exit> {
    let _lock = state_dir.lock(&task.id)?;
    let started = ConversationStarted {
        agent: config.agent.clone(),
        model: task.model,
        max_iterations: config.max_iterations,
        runtime: config.runtime.clone(),
        image: config.sandbox.image.clone(),
        workspace: task.workspace.for_log()?,
        setup: task.setup,
    };
    let parts = Parts {
        store: state_dir.store().await?,
        llm: task.llm,
        agent: compose::agent(config)?,
        provider: compose::provider(config, state_dir)?,
        spec: spec(config, &task.id, &started),
    };
    if task.work.output() == Output::Transcript {
        introduce(&task.id, &started);
        if let Some((isolation, bounds)) = compose::isolation(config, state_dir).await? {
            print::note(&format!("isolation: {isolation}\nbounded: {bounds}\n"));
        }
    }
    let sweep = Sweep::begin(&parts.provider, config, state_dir);
    let conversation = Conversation::begin(parts.clone(), task.id, started).await?;
    conversation.say(MessageAction { content: task.text, ..Default::default() })?;
    let exit = finish(conversation, &parts, config, &task.work, EventId::FIRST).await;
    sweep.end().await;
    exit
}

/// Follows an open conversation to its end and closes it: of the sandbox becomes what is configured, the log and the
/// workspace stay.
pub(super) async fn finish(
    conversation: Conversation,
    parts: &Parts,
    config: &Config,
    work: &WorkArguments,
    from: EventId,
) -> anyhow::Result<Exit> {
    let following = Follow {
        conversation: &conversation,
        output: work.output(),
        from,
        auto_continue: !work.no_auto_continue,
    };
    let exit = following.follow().await;
    let id = conversation.id().clone();
    let state = conversation.state();
    // A lease that cannot be reached now may hold work: only what ended in order is removed.
    let is_in_order = state.pending.is_none() || exit.as_ref().is_ok_and(|exit| *exit == Exit::Interrupted);
    conversation.close(if is_in_order { config.sandbox.afterwards } else { Afterwards::Keep }).await?;
    let exit = exit?;
    if let Some(path) = &config.save_trajectory {
        conversations::save_trajectory(parts.store.as_ref(), &id, path).await?;
    }
    if work.output() == Output::Transcript {
        print::note(&conversations::closing_words(&id, &state, exit));
    }
    Ok(exit)
}

/// What the conversation's sandbox is to be. Its environment is the configuration's: the log holds no secrets.
pub(super) fn spec(config: &Config, id: &ConversationId, started: &ConversationStarted) -> SandboxSpec {
    SandboxSpec {
        image: started.image.clone(),
        environment: workspace::environment(config, started.setup.as_ref()),
        workspace: started.workspace.as_ref().map(PathBuf::from),
        ..compose::spec(config, id.clone())
    }
}

pub(super) fn new_conversation_id() -> anyhow::Result<ConversationId> {
    Ok(ConversationId::try_from(uuid::Uuid::now_v7().simple().to_string())?)
}

pub(super) fn introduce(id: &ConversationId, started: &ConversationStarted) {
    let workspace = started.workspace.as_deref().unwrap_or("a fresh folder");
    print::note(&format!(
        "conversation {id}: {} in {}, working in {workspace}\n",
        started.model, started.runtime
    ));
}

fn read_task(task: Option<String>, file: Option<&Path>) -> anyhow::Result<String> {
    let text = match (task, file) {
        (Some(task), _) => task,
        (None, Some(path)) if path == Path::new("-") => read_stdin()?,
        (None, Some(path)) => {
            let bytes = std::fs::read(path)
                .map_err(|error| UsageError(format!("reading the task in {}: {error}", path.display())))?;
            utf8(bytes, &path.display().to_string())?
        }
        (None, None) if !std::io::stdin().is_terminal() => read_stdin()?,
        (None, None) => String::new(),
    };
    if text.trim().is_empty() {
        return Err(UsageError("there is no task: give one with -t TASK or -f FILE".to_owned()).into());
    }
    Ok(text)
}

fn read_stdin() -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).context("reading the task from standard input")?;
    utf8(bytes, "standard input")
}

fn utf8(bytes: Vec<u8>, what: &str) -> anyhow::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        UsageError(format!("the task in {what} is not UTF-8: byte {byte}")).into()
    })
}
